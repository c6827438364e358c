"""From a folder of photographs to a model to use: `regmixup finetune PHOTOS`, `rm.finetune(path)`.

    inspect    classes, parts, unreadable files, copies                      folder.py
    probe      a linear head on stored features of the frozen backbone       probe.py
    plan       the pace of training is measured; it decides the epochs       probe.py
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
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from regmixup.config import check_count, check_number
from regmixup.data.folders import FolderSet
from regmixup.data.reading import load_files
from regmixup.deployment.calibration import Calibration, first_rows
from regmixup.deployment.export import check_format
from regmixup.deployment.finish import Say, check_risk, finish
from regmixup.deployment.folder import (
    Advance,
    PhotoFolder,
    Settings,
    expected_pixels,
    find_folder,
    hide_files,
    inspect,
    native_size,
    suggest,
)
from regmixup.deployment.probe import Features, Plan, compute_features, fit_probe, measure_pace, plan_epochs
from regmixup.losses import CrossEntropy, balanced_weight
from regmixup.names import check_name, counted, percent, shortened
from regmixup.networks import build, check_network
from regmixup.networks.contract import Classifier, LinearHead
from regmixup.recipes import BACKBONE
from regmixup.storage import check_writable, read_table, save_tensors, write_table
from regmixup.training.config import TrainConfig, check_present, choose_device, configure, resolve
from regmixup.training.initial_weights import InitialWeights, identify, load_initial_weights
from regmixup.training.run import Run
from regmixup.training.train import train

ClassWeights = Literal["none", "balanced"]
Watch = Callable[[str, TrainConfig], Mapping[str, Any]]
"""Called with the name of a training and its configuration; returns callbacks for `rm.train`."""
RECIPE: dict[str, Any] = {
    "optimizer": "adamw",
    "lr": 3e-4,
    "min_lr": 1e-6,
    "warmup_lr": 0.0,
    "cooldown_epochs": 0,
    "weight_decay": 0.05,
    "decay_on": "weights",
    "clip_norm": 1.0,
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
    class_weights: ClassWeights = "none",
    acceptance: float = 0.95,
    risk: float | None = None,
    score: str | None = None,
    export: str | Path | None = None,
    hide_unreadable: bool = False,
    seed: int = 0,
    device: str | torch.device | None = None,
    workers: int | None = None,
    say: Say = print,
    watch: Watch = lambda *_: {},
    advance: Advance = lambda *_: None,
) -> Run:
    """Fine-tune a pretrained backbone on a folder of photographs; return the run, which is an ordinary one.

    path: a folder with one subfolder of images per class, or one with train/ and val/ or test/; see `folder.inspect`.
    backbone: a network, such as any `timm/...`. init: its weights, as in a recipe: timm for its own, or a file.
    method: how all weights are trained, after the linear probe; see `regmixup list methods`. Plain training is the
    default because RegMixup was not better on a few hundred images (docs/fine-tuning.md).
    minutes: about the time for everything. The measured pace decides the epochs; where fewer than 5 fit, the probe is
    the model. epochs: instead; 0 for the linear probe alone. image_size: default, that of the backbone's weights.
    acceptance: the share of validation images that the threshold accepts; risk, score: see `Predictor.from_run`.
    export: a .pt2 or .onnx file to write, which runs without this package.
    hide_unreadable: put a dot before the names of files that cannot be decoded, instead of refusing.
    say: called with every line about what was found and chosen. watch: called before all weights are trained, see
    `Watch`. advance: called with "reading", "features" or "finishing", the number of images just done, and
    that of all.

    Beside what every run has, its folder gets report.html, finetune.json with all numbers, and predictor/, which
    `rm.Predictor.load` reads. Called again, it goes on where it was interrupted.
    """
    begun = time.monotonic()
    Calibration(acceptance=acceptance, risk=risk, score="entropy" if score is None else score)  # checks them now
    if export is not None:
        check_format(Path(export))
        check_writable(Path(export))
    request = Request(
        backbone=backbone, init=init, method=method, minutes=minutes, epochs=epochs, image_size=image_size,
        class_weights=class_weights, hide_unreadable=hide_unreadable, seed=seed, device=device, workers=workers,
    )  # fmt: skip
    job = prepare(path, runs, request, say=say, advance=advance)
    photos = job.photos
    rows = None
    if risk is not None:
        check_risk(photos, risk)
        rows = first_rows(photos.sizes[photos.validation])
    work = job.work_folder(risk is not None)
    weights = work / "probe.safetensors"
    job.write_probe(weights, say=say, advance=advance, rows=rows)
    plan = job.plan(work, 60 * minutes - (time.monotonic() - begun), say=say)
    say(f"epochs       {plan.describe(len(job.images), minutes)}")
    train_here = partial(train, runs=runs, device=job.device, workers=workers)
    candidates = {"linear probe": train_here(job.configure(epochs=0, init=str(weights)))}
    if plan.epochs:
        config = job.configure(epochs=plan.epochs, init=str(weights))
        candidates["fine-tuned"] = train_here(config, **watch("fine-tuning", config))
    facts = {
        "settings": asdict(job.settings), "epochs": plan.epochs, "method": method, "init": job.initial.record(),
    }  # fmt: skip
    return finish(
        candidates, photos, facts, acceptance=acceptance, risk=risk, score=score, export=export, device=job.device,
        say=say, advance=advance, begun=begun,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Request:
    """How to train; see `finetune` for the meaning of each field."""

    backbone: str = BACKBONE
    init: str = "timm"
    method: str = "dnn"
    minutes: float = 10.0
    epochs: int | None = None
    image_size: int | None = None
    class_weights: ClassWeights = "none"
    hide_unreadable: bool = False
    seed: int = 0
    device: str | torch.device | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        check_number("minutes", self.minutes, above=0)
        check_name("class_weights", self.class_weights, ("none", "balanced"))
        for name, least in (("epochs", 0), ("image_size", 1), ("workers", 0)):
            if (count := getattr(self, name)) is not None:
                check_count(name, count, least=least)


def prepare(path: str | Path, runs: str | Path, request: Request, *, say: Say, advance: Advance) -> Job:
    """Check what can be checked before training, read the folder, and say what was found and chosen."""
    check_writable(Path(runs) / "finetune.json")
    device = choose_device(request.device)
    check_present(device)
    check_method(request.method, request.class_weights)
    check_network(request.backbone)
    find_folder(path)
    if not request.init:
        raise ValueError("init must be timm or the path of a file with weights, got '': a linear probe needs features")
    init = identify(request.init, request.backbone)  # last, as it may download the weights
    request = replace(request, init=init, device=device)
    initial = _check_backbone(request.backbone, init, request.image_size)
    if request.hide_unreadable and (hidden := hide_files(path)):
        say(f"hidden       {counted(len(hidden), 'file')} that cannot be decoded: {shortened(hidden, 10)}")
    say(f"reading      {path}: every file is decoded once")
    photos = inspect(path, advance)
    settings = suggest(photos, backbone=request.backbone, image_size=request.image_size)
    job = Job(Path(runs), request, photos, settings, initial, load_files(photos.train), device)
    say(photos.describe(class_weights=request.class_weights))
    say(job.describe())
    return job


def check_method(method: str, class_weights: ClassWeights) -> None:
    """Raise unless a method trains one network with a linear head."""
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


@dataclass(frozen=True)
class Job:
    """The request and the images. initial: which weights the backbone starts from. images: those to train on."""

    runs: Path
    request: Request
    photos: PhotoFolder
    settings: Settings
    initial: InitialWeights
    images: FolderSet
    device: torch.device

    def configure(self, *, epochs: int, init: str = "") -> TrainConfig:
        """Return the configuration of fine-tuning or, with 0 epochs, of the probe."""
        how: dict[str, Any] = {"method": self.request.method} if epochs else {"method": "dnn", "freeze": "always"}
        config = configure(
            "imagenet-resnet50", **how, **RECIPE, **expected_pixels(self.settings.backbone),
            train_set=self.photos.train, network=self.settings.backbone, init=init or self.request.init, epochs=epochs,
            batch_size=self.settings.batch_size, warmup_epochs=min(1.0, epochs / 10), orient=True,
            image_size=self.settings.image_size, seed=self.request.seed,
        )  # fmt: skip
        if self.request.class_weights == "balanced" and epochs:
            loss = CrossEntropy(weight=balanced_weight(self.images.labels, len(self.images.classes)))
            config = replace(config, objective=replace(config.objective, loss=loss))  # type: ignore[call-arg]
        return config

    def describe(self) -> str:
        """Return lines about what was chosen before anything is measured."""
        config = self.configure(epochs=1)
        flips = ", flips" if config.flip else ""
        mean, std = (", ".join(f"{value:.3g}" for value in values) for values in (config.mean, config.std))
        return (
            f"backbone     {config.network} (--backbone), pixels normalised by mean ({mean}) and std ({std})\n"
            f"training     a linear probe on stored features, then all weights: {self.request.method} (--method), "
            f"AdamW at {config.lr:g}, batches of {config.batch_size}, class weights {self.request.class_weights} "
            "(--class-weights)\n"
            f"augment      photographs upright, by their EXIF orientation; random crops of "
            f"{100 * config.crop_area:.0f} to 100 % of the area{flips}, colours changed by up to "
            f"{100 * config.color_jitter:.0f} %\n"
            f"size         {config.image_size} pixels (--image-size)\n"
            f"weights      {str(self.initial).removeprefix('init: ')}"
        )

    def work_folder(self, *asked: object) -> Path:
        """Return the folder of the plan and the probes: named by the request, the images and the weights."""
        config = resolve(self.configure(epochs=1), self.device)
        request = (self.request.minutes, self.request.epochs, *asked)
        parts = [Run(Path(), config).fingerprint, self.photos.fingerprint, self.device.type, *map(str, request)]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
        return self.runs / f"finetune-{self.photos.path.name}-{key}"

    def plan(self, work: Path, seconds: float, *, say: Say) -> Plan:
        """Return the epochs for so many seconds, or those that an earlier call has stored in `work`."""
        path, epochs = work / "plan.json", self.request.epochs
        if path.is_file():
            return Plan(**read_table(path))
        if epochs is not None:
            plan = Plan(epochs, epochs)
        else:
            say("pace         is measured on a few images; it decides the epochs")
            pace = measure_pace(self.configure(epochs=1), self.images, self.device)
            plan = plan_epochs(self.settings.epochs, num_train=len(self.images), pace=pace, seconds=seconds)
        write_table(path, asdict(plan))
        return plan

    def build(self) -> Classifier:
        """Return the backbone with its pretrained weights."""
        config, size = resolve(self.configure(epochs=0), self.device), self.settings.image_size
        with torch.random.fork_rng([]):
            shape = (3, size, size)
            model = Run(Path(), config).build(num_classes=len(self.images.classes), input_shape=shape)
        load_initial_weights(model, config, input_shape=shape)
        return model.to(self.device)

    def write_probe(self, path: Path, *, say: Say, advance: Advance, rows: Tensor | None = None) -> None:
        """Fit the linear probe and write the backbone with its head, unless an earlier call has done so.

        rows: the validation images that choose its decay; None: all.
        """
        if path.is_file():
            return
        validation_images = load_files(self.photos.validation)
        count = len(self.images) + len(validation_images)
        say(f"features     of {count:,} images are computed by the frozen backbone, then the probe is fitted")
        begun = time.monotonic()
        model = self.build()
        config = resolve(self.configure(epochs=0), self.device)
        classes = self.images.classes
        advance("features", 0, count)
        features = partial(
            compute_features, model, config=config, classes=classes,
            advance=lambda done: advance("features", done, count),
        )  # fmt: skip
        train_features, validation = features(self.images), features(validation_images)
        if rows is not None:
            validation = Features(validation.values[rows], validation.labels[rows])
        weight = balanced_weight(self.images.labels, len(classes)) if self.request.class_weights == "balanced" else None
        head = fit_probe(train_features, validation, len(classes), weight)
        assert isinstance(model.head, torch.nn.Linear)
        with torch.no_grad():
            model.head.weight.copy_(head.weight)
            model.head.bias.copy_(head.bias)
        save_tensors(path, model.state_dict(), {"decay": str(head.decay)})
        say(
            f"probe        {percent(head.accuracy)} of the validation images right, decay {head.decay:g} chosen on "
            f"them, {time.monotonic() - begun:.0f} s"
        )
