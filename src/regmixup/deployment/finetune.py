"""From a folder of photographs to a model to use: `regmixup finetune PHOTOS`, `rm.finetune(path)`.

    inspect    classes, parts, unreadable files, copies                      folder.py
    plan       the pace is measured; it decides image sizes and epochs       probe.py
    probe      a linear head on stored features of the frozen backbone       probe.py
    fine-tune  all weights, from the probe's head; an ordinary run           `rm.train`
    choose     by validation accuracy; the probe, if fine-tuning is worse
    finish     temperature and threshold on validation, results on test      finish.py

Both the probe and the fine-tuned model are ordinary runs; the probe's has no epochs, its weights are those of the file
it starts from. What was measured and the probe's weights are in `RUNS/finetune-NAME-HASH`, so that the same command
goes on where it was stopped. Nothing is chosen or fitted on test images.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from regmixup.config import check_count, check_number
from regmixup.data.folders import FolderSet
from regmixup.data.reading import load_files
from regmixup.deployment.calibration import Calibration, first_rows
from regmixup.deployment.finish import Say, check_export, finish, sets_aside
from regmixup.deployment.folder import (
    Advance,
    PhotoFolder,
    Settings,
    expected_pixels,
    find_classes,
    hide_files,
    inspect,
    native_size,
    suggest,
)
from regmixup.deployment.probe import (
    Features,
    Pace,
    Plan,
    compute_features,
    fit_probe,
    make_plan,
    measure_pace,
    read_plan,
    write_plan,
)
from regmixup.losses import CrossEntropy, balanced_weight
from regmixup.names import check_name, counted, percent, shortened
from regmixup.networks import build, check_network
from regmixup.networks.contract import Classifier, LinearHead
from regmixup.recipes import BACKBONE
from regmixup.storage import check_writable, save_tensors
from regmixup.training.checkpoint import read_checkpoint
from regmixup.training.config import TrainConfig, check_present, choose_device, configure, resolve
from regmixup.training.initial_weights import InitialWeights, identify, load_initial_weights
from regmixup.training.run import Run
from regmixup.training.train import train

__all__ = ["BACKBONE", "PhotoFolder", "Settings", "finetune", "inspect", "suggest"]

Watch = Callable[[TrainConfig], Mapping[str, Any]]
RECIPE: dict[str, Any] = {
    "optimizer": "adamw",
    "lr": 3e-4,
    "min_lr": 1e-6,
    "warmup_lr": 0.0,
    "cooldown_epochs": 0,
    "weight_decay": 0.05,
    "decay_on": "weights",
    "clip_norm": 1.0,
    "layer_decay": 0.9,
    "crop_area": 0.35,
}
"""The recipe for training all weights, beside size, epochs and batches."""


def finetune(
    path: str | Path,
    runs: str | Path = "runs",
    *,
    backbone: str = BACKBONE,
    init: str = "timm",
    method: str = "dnn",
    minutes: float = 10.0,
    epochs: int | None = None,
    image_size: int | None = None,
    class_weights: Literal["none", "balanced"] = "none",
    acceptance: float = 0.95,
    risk: float | None = None,
    score: str | None = None,
    export: str | Path | None = None,
    hide_unreadable: bool = False,
    seed: int = 0,
    device: str | torch.device | None = None,
    workers: int | None = None,
    say: Say = print,
    watch: Watch | None = None,
    advance: Advance = lambda *_: None,
    begun: float | None = None,
) -> Run:
    """Fine-tune a pretrained backbone on a folder of photographs; return the run, which is an ordinary one.

    path: a folder with one subfolder of images per class, or one with train/ and val/ or test/; see `folder.inspect`.
    backbone: a network, such as any `timm/...`. init: its weights, as in a recipe: timm for its own, or a file.
    method: how all weights are trained, after the linear probe; see `regmixup list methods`. Plain training is the
    default because RegMixup was not better on a few hundred images (docs/fine-tuning.md).
    minutes: the time for everything. The measured pace decides image size and epochs; where it turns out slower,
    training stops at the last epoch that fits, and the same call goes on with the others.
    epochs, image_size: instead of what the pace allows; 0 epochs for the linear probe alone.
    acceptance: the share of validation images that the threshold accepts; risk, score: see `Predictor.from_run`.
    export: a .pt2 or .onnx file to write, which runs without this package.
    hide_unreadable: put a dot before the names of files that cannot be decoded, instead of refusing.
    say: called with every line about what was found and chosen. watch: called with the configuration before all
    weights are trained, returns callbacks for `rm.train`. advance: called with "reading", "pace at .. pixels",
    "features", "probe" or "finishing", the number of images just done, and that of all. begun: the `time.monotonic()`
    from which the minutes count.

    Beside what every run has, its folder gets report.html, finetune.json with all numbers, and predictor/, which
    `rm.Predictor.load` reads. Called again, it goes on where it was interrupted.
    """
    begun = time.monotonic() if begun is None else begun
    check_number("minutes", minutes, above=0)
    check_name("class_weights", class_weights, ("none", "balanced"))
    for name, value, least in (("epochs", epochs, 0), ("image_size", image_size, 1), ("workers", workers, 0)):
        if value is not None:
            check_count(name, value, least=least)
    Calibration(acceptance=acceptance, risk=risk, score="entropy" if score is None else score)  # checks them now
    check_writable(Path(runs) / "finetune.json")
    if export is not None:
        check_export(Path(export))
    device = choose_device(device)
    check_present(device)
    _check_method(method, class_weights)
    check_network(backbone)
    find_classes(path)
    if not init:
        raise ValueError("init must be timm or the path of a file with weights, got '': a linear probe needs features")
    init = identify(init, backbone)  # last, as it may download the weights
    initial = _check_backbone(backbone, init, image_size)
    if hide_unreadable and (hidden := hide_files(path)):
        say(f"hidden       {counted(len(hidden), 'file')} that cannot be decoded: {shortened(hidden, 10)}")
    say(f"reading      {path}: every file is decoded once")
    photos = inspect(path, advance)
    settings = suggest(photos, minutes, backbone=backbone)
    images = load_files(photos.train)
    job = _Job(photos, settings, init, method, class_weights, seed, images, device)
    say(photos.describe())
    say(job.describe())
    aside = sets_aside(photos, risk, say)
    say(f"weights      {str(initial).removeprefix('init: ')}")
    asked = (minutes, epochs, image_size, *(("held out",) if aside else ()))
    work = Path(runs) / f"finetune-{photos.path.name}-{job.key(*asked)}"
    plan = read_plan(work)
    if plan is None:
        if epochs is None or image_size is None:
            say("pace         is measured on a few images; it decides image size and epochs")
        spent = time.monotonic() - begun
        measure = partial(job.pace_at, advance=advance)
        plan = make_plan(photos, settings, measure, epochs=epochs, image_size=image_size, spent=spent)
        write_plan(work, plan)
    say(plan.describe(len(images), minutes, given=epochs is not None))
    weights = work / "probe.safetensors"
    if not weights.is_file():
        if plan.probing(photos) > (left := begun + 60 * minutes - time.monotonic()) and not plan.epochs:
            say(
                f"warning      the linear probe alone takes about {plan.probing(photos):.0f} s, and "
                f"{max(0, left):.0f} s are left of --minutes {minutes:g}. It is fitted all the same"
            )
        _write_probe(weights, job, plan, say, advance, aside=aside)
    train_here = partial(train, runs=runs, device=device, workers=workers)
    probe = train_here(job.configure(plan.probe_size, epochs=0, init=str(weights)))
    candidates, trained = {"linear probe": probe}, 0
    if plan.epochs:
        end = begun + 60 * minutes - plan.finishing(photos) if epochs is None else None
        candidates["fine-tuned"], plan, trained = _fine_tune(job, plan, weights, train_here, watch, end, say)
    facts = {
        "settings": asdict(settings), "plan": asdict(plan), "epochs": trained, "init": initial.record(),
        "method": method,
    }  # fmt: skip
    return finish(
        candidates, photos, facts, acceptance=acceptance, risk=risk if aside else None, score=score, export=export,
        device=device, say=say, advance=advance, begun=begun,
    )  # fmt: skip


@dataclass(frozen=True)
class _Job:
    """The request and the images."""

    photos: PhotoFolder
    settings: Settings
    init: str
    method: str
    class_weights: str
    seed: int
    images: FolderSet
    device: torch.device

    def configure(self, size: int, *, epochs: int, init: str = "") -> TrainConfig:
        """Return the configuration of fine-tuning or, with 0 epochs, of the probe."""
        how: dict[str, Any] = {"method": self.method} if epochs else {"method": "dnn", "freeze": "always"}
        config = configure(
            "imagenet-resnet50", **how, **RECIPE, **expected_pixels(self.settings.backbone),
            train_set=self.photos.train, network=self.settings.backbone, init=init or self.init, epochs=epochs,
            batch_size=self.settings.batch_size, warmup_epochs=min(1.0, epochs / 10), image_size=size, orient=True,
            seed=self.seed,
        )  # fmt: skip
        if self.class_weights == "balanced" and epochs:
            loss = CrossEntropy(weight=balanced_weight(self.images.labels, len(self.images.classes)))
            config = replace(config, objective=replace(config.objective, loss=loss))  # type: ignore[call-arg]
        return config

    def describe(self) -> str:
        """Return lines about what was chosen before anything is measured."""
        config = self.configure(self.settings.image_size, epochs=self.settings.epochs)
        flips = ", flips" if config.flip else ""
        mean, std = (", ".join(f"{value:.3g}" for value in values) for values in (config.mean, config.std))
        return (
            f"backbone     {config.network} (--backbone), pixels normalised by mean ({mean}) and std ({std})\n"
            f"training     a linear probe on stored features, then all weights: {self.method} (--method; `regmixup "
            f"advise` compares methods), AdamW at {config.lr:g}, batches of {config.batch_size}, class weights "
            f"{self.class_weights} (--class-weights)\n"
            f"augment      photographs upright, by their EXIF orientation; random crops of "
            f"{100 * config.crop_area:.0f} to 100 % of the area{flips}, colours changed by up to "
            f"{100 * config.color_jitter:.0f} %"
        )

    def build(self, size: int) -> Classifier:
        """Return the backbone with its pretrained weights."""
        config = resolve(self.configure(size, epochs=0), self.device)
        with torch.random.fork_rng([]):
            shape = (3, size, size)
            model = Run(Path(), config).build(num_classes=len(self.images.classes), input_shape=shape)
        load_initial_weights(model, config, input_shape=shape)
        return model.to(self.device)

    def pace_at(self, size: int, advance: Advance) -> Pace:
        """Measure the pace at an image size."""
        return measure_pace(self.configure(size, epochs=1), self.images, self.device, self.settings.minutes, advance)

    def key(self, *asked: object) -> str:
        """Return what identifies the work: the request, the images and the weights."""
        config = resolve(self.configure(self.settings.image_size, epochs=1), self.device)
        parts = [Run(Path(), config).fingerprint, self.photos.fingerprint, self.device.type, *map(str, asked)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _check_method(method: str, class_weights: str) -> None:
    config = configure("imagenet-resnet50", method)
    if config.members > 1 or not isinstance(config.head, LinearHead) or config.constraint is not None:
        raise ValueError(
            f"method must be one that trains a single network with a linear head, such as regmixup, mixup or dnn, "
            f"got {method}"
        )
    if class_weights == "balanced" and not hasattr(config.objective, "loss"):
        raise ValueError(f"class_weights must be none for {method}, which has a loss of its own, got balanced")


def _check_backbone(backbone: str, init: str, image_size: int | None) -> InitialWeights:
    """Raise if the weights or the size do not suit the backbone; return which weights it takes, a new head aside."""
    from regmixup.networks.timm_models import total_stride

    native = native_size(backbone)
    size = image_size or native
    config = configure("imagenet-resnet50", network=backbone, init=init, **expected_pixels(backbone))
    with torch.random.fork_rng([]):
        model = build(backbone, num_classes=1, image_size=size)
    if size < (least := total_stride(model)):
        raise ValueError(
            f"image_size must be at least {least}, the stride of the last features of {backbone}: smaller images do "
            f"not fill one position of them, got {size}. Its own weights were trained on {native} pixels"
        )
    return load_initial_weights(model, config, input_shape=(3, size, size))


class _FineTuned(NamedTuple):
    """The fine-tuned model, the plan that it followed in the end, and the epochs that it was trained for."""

    run: Run
    plan: Plan
    epochs: int


def _fine_tune(
    job: _Job, plan: Plan, probe: Path, train_here: Callable[..., Run], watch: Watch | None, end: float | None, say: Say
) -> _FineTuned:
    """Train all weights from the probe's; where that is too slow, begin again with fewer epochs, or stop early.

    probe: the probe's weights, in the folder of this work. train_here: `train` with all but configuration and
    callbacks. end: when training must have ended; None where the epochs were given.
    """
    work = probe.parent
    while True:
        config = resolve(job.configure(plan.size, epochs=plan.epochs, init=str(probe)), job.device)
        hooks = watch(config) if watch is not None else {}
        try:
            run = train_here(config, **(hooks if end is None else _watching(hooks, plan, end=end)))
            return _FineTuned(run, plan, plan.epochs)
        except _TooSlowError as slow:
            run = Run.of(config, work.parent)
            if slow.fits is None:
                stopped = work / "stopped.safetensors"
                trained = _write_stopped(stopped, job, run)
                say(
                    f"stopped      after {trained} of {plan.epochs} epochs, of {slow.seconds:.0f} s each: the time is "
                    "up. What was learned is used; the same command trains the other epochs"
                )
                run = train_here(job.configure(plan.size, epochs=0, init=str(stopped)))
                return _FineTuned(run, plan, trained)
            plan = replace(plan, epochs=slow.fits)
            write_plan(work, plan)
            shutil.rmtree(run.folder)
            say(f"slower       an epoch takes {slow.seconds:.0f} s: begins again with {counted(slow.fits, 'epoch')}")


class _TooSlowError(Exception):
    """Training is slower than measured. fits: the epochs to begin again with; None: the next one does not fit."""

    def __init__(self, seconds: float, fits: int | None) -> None:
        super().__init__(f"an epoch takes {seconds:.0f} s")
        self.seconds, self.fits = seconds, fits


def _watching(hooks: Mapping[str, Any], plan: Plan, *, end: float) -> dict[str, Any]:
    """Add to callbacks that epochs are compared with the time left: other programs may slow this one down.

    If the first one shows that all would take half as long again as the time left, training begins again with as many
    as fit, so that the learning rate falls to its end. Later it stops where the next epoch does not fit.
    """

    def on_epoch(record: dict[str, Any]) -> None:
        if (inner := hooks.get("on_epoch")) is not None:
            inner(record)
        left, seconds, more = end - time.monotonic(), record["seconds"], plan.epochs - record["epoch"]
        fits = int(0.85 * left / seconds)
        if record["epoch"] == 1 and more * seconds > 1.5 * left and fits > 1:
            raise _TooSlowError(seconds, min(more, fits))
        if more and seconds > left:
            raise _TooSlowError(seconds, None)

    return {**hooks, "on_epoch": on_epoch}


def _write_probe(path: Path, job: _Job, plan: Plan, say: Say, advance: Advance, *, aside: bool) -> None:
    """Fit the linear probe and write the backbone with its head. aside: images that test a promise choose no decay."""
    count = len(job.images) + job.photos.sizes[job.photos.validation]
    pace = plan.paces.get(plan.probe_size)
    time_needed = f", about {count * pace.forward:.0f} s" if pace is not None else ""
    say(f"features     of {count:,} images are computed by the frozen backbone{time_needed}, then the probe is fitted")
    begun = time.monotonic()
    model = job.build(plan.probe_size)
    config = resolve(job.configure(plan.probe_size, epochs=0), job.device)
    classes = job.images.classes
    advance("features", 0, count)
    features = partial(
        compute_features, model, config=config, classes=classes, advance=lambda done: advance("features", done, count)
    )
    train_features, validation = features(job.images), features(load_files(job.photos.validation))
    if aside:
        rows = first_rows(len(validation.labels))
        validation = Features(validation.values[rows], validation.labels[rows])
    weight = balanced_weight(job.images.labels, len(classes)) if job.class_weights == "balanced" else None
    head = fit_probe(train_features, validation, len(classes), weight, advance)
    assert isinstance(model.head, torch.nn.Linear)
    with torch.no_grad():
        model.head.weight.copy_(head.weight)
        model.head.bias.copy_(head.bias)
    save_tensors(path, model.state_dict(), {"decay": str(head.decay)})
    say(
        f"probe        {percent(head.accuracy)} of the validation images right, decay {head.decay:g} chosen on them, "
        f"{time.monotonic() - begun:.0f} s"
    )


def _write_stopped(path: Path, job: _Job, run: Run) -> int:
    """Write the weights that a run has so far, as its last checkpoint has them; return after how many epochs that is.

    A run of no epochs then has them as its model, as the probe has its own. The run itself can still be resumed.
    """
    found = read_checkpoint(run.checkpoint, fingerprint=run.fingerprint)
    model = job.build(run.config.image_size)
    found.restore_model(model)
    save_tensors(path, model.state_dict(), {"epoch": str(found.position.epoch)})
    return found.position.epoch
