"""A fine-tuning job: what was asked for, the images, and how each training of it is configured.

The plan and the probe's weights are stored in `RUNS/finetune-NAME-HASH`: the same command goes on where it was stopped.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from regmixup import methods
from regmixup.config import fingerprint
from regmixup.data.images import FolderSet
from regmixup.deployment.calibration import Calibration, halves
from regmixup.deployment.export import check_format
from regmixup.deployment.folder import Advance, PhotoFolder, check_outliers, find_outliers, find_photos, inspect
from regmixup.deployment.probe import Plan, build_network, fit_probe, measure_pace, plan_epochs, predict_files
from regmixup.deployment.request import Request
from regmixup.losses import CrossEntropy, balanced_weight
from regmixup.names import percent, shortened
from regmixup.networks import check_network
from regmixup.networks.contract import Classifier, LinearHead
from regmixup.networks.precision import check_precision
from regmixup.objectives import has_loss
from regmixup.storage import check_writable, read_table, save_tensors, write_table
from regmixup.training.config import TrainConfig, configure, resolve
from regmixup.training.engine import check_present, choose_device
from regmixup.training.initial_weights import TIMM, InitialWeights, identify, load_initial_weights
from regmixup.types import Predictions

BASE = "imagenet-resnet50"
"""The recipe of image files, whatever the backbone: its crops, its colours, and what the paper chose for a method."""
RECIPE: dict[str, Any] = {
    "optimizer": "adamw",
    "warmup_lr": 0.0,
    "cooldown_epochs": 0,
    "weight_decay": 0.05,
    "decay_on": "weights",
    "clip_norm": 1.0,
    "average_lr": None,
    "orient": True,
}
"""The fields of `BASE` that training all weights changes, beside what the request decides."""
AUGMENTATION: dict[str, dict[str, Any]] = {
    "none": {"crop_area": 1.0, "flip": False, "color_jitter": 0.0},
    "light": {"crop_area": 0.8, "color_jitter": 0.0},
    "standard": {"crop_area": 0.35},
    "strong": {"crop_area": 0.35, "rand_augment": 2},
}
"""Fields of the recipe by the name of an augmentation; see `Request`."""
_MIN_LR = 1e-6
FEATURES = "features.safetensors"
"""The file of the train images' features on which a probe was fitted last, beside the probe's."""


def prepare(
    path: str | Path, runs: str | Path, request: Request, *, say: Callable[[str], object], advance: Advance
) -> Job:
    """Check what can be checked before training, read the folder, and say what was found and chosen."""
    request = replace(request, epochs=0 if request.freeze else request.epochs)
    calibration = Calibration(acceptance=request.acceptance, risk=request.risk, score=request.score)
    device = _check_request(request, Path(runs))
    find_photos(path)
    outliers = find_outliers(request.ood) if request.ood is not None else None
    try:  # last, as it may download the weights
        request = replace(request, init=identify(request.init, request.backbone))
    except (OSError, ValueError):
        find_photos(path, listed=True)  # its error comes first: to get the weights may take longer than to mend a table
        raise
    initial = _check_weights(request)
    say(f"reading      {path}: every file is decoded once")
    photos = inspect(path, advance)
    if outliers is not None:
        check_outliers(outliers, photos, advance)
    job = Job(
        Path(runs), request, calibration, photos, initial, device, print_line=say, advance=advance, outliers=outliers
    )
    job.say(photos.describe(class_weights=request.class_weights))
    job.say(job.describe())
    return job


def _check_request(request: Request, runs: Path) -> torch.device:
    """Raise unless the request can be met here, as far as that shows without a file; return the device to train on."""
    if request.export is not None:
        check_format(Path(request.export))
        check_writable(Path(request.export))
    check_writable(runs / "finetune.json")
    device = choose_device(request.device)
    check_present(device)
    if request.precision != "auto":
        check_precision(request.precision, device)
    check_method(request)
    check_network(request.backbone)
    if request.init == TIMM and not request.backbone.startswith("timm/"):
        contract = "must be one of timm's, such as timm/resnet18, or init a file with its weights"
        raise ValueError(f"backbone {contract}, got {request.backbone!r}")
    return device


def check_method(request: Request) -> None:
    """Raise unless the method trains one network with a linear head, and is no more than its training."""
    config, posthoc = configure(BASE, request.method), methods.get(request.method).posthoc
    is_plain = config.members == 1 and config.constraint is None and posthoc is None
    if not is_plain or not isinstance(config.head, LinearHead):
        raise ValueError(
            f"method must be one that trains a single network with a linear head, and has no posthoc map, such as "
            f"regmixup, mixup or dnn, got {request.method}"
        )
    takes_weights = has_loss(config.objective) and config.objective.loss is None  # type: ignore[attr-defined]
    if request.class_weights == "balanced" and not takes_weights:
        raise ValueError(f"class_weights must be none for {request.method}, which has a loss of its own, got balanced")


def _check_weights(request: Request) -> InitialWeights:
    """Raise if the weights do not suit the backbone; return which of them it takes, a new head aside.

    All of the backbone's must be there: a probe on partly random features would be poor, and nothing would say why.
    """
    config = configure(BASE, network=request.backbone, init=request.init, **expected_images(request))
    model, side = build_network(config, num_classes=1), config.image_size
    _check_patches(model, request.backbone, side)
    initial = load_initial_weights(model, config, input_shape=(3, side, side))
    if random := [name for name in initial.initialised if not name.startswith("head.")]:
        raise ValueError(
            f"init must hold all weights of {request.backbone} for images of {side} pixels, {initial.source} has none "
            f"that fit {shortened(random, 4)}"
        )
    return initial


def _check_patches(model: Classifier, backbone: str, side: int) -> None:
    """Raise unless whole patches of a transformer fill the image: timm would cut off what is left at the border."""
    patches: Any = getattr(next(model.backbone.children(), None), "patch_embed", None)
    patch = max(patches.patch_size) if isinstance(getattr(patches, "patch_size", None), tuple) else 1
    if side % patch:
        nearest = patch * max(1, round(side / patch))
        raise ValueError(
            f"image_size must be a multiple of {patch}, the patches of {backbone}, such as {nearest}, got {side}"
        )


def expected_images(request: Request) -> dict[str, Any]:
    """Return the images that the backbone's weights expect: their size, unless it was asked for, and timm's pixels."""
    network = request.backbone
    if not network.startswith("timm/"):
        return {"image_size": request.image_size or 32}
    from regmixup.networks.timm_models import published

    expected = published(network)
    return {
        "image_size": request.image_size or max(expected.input_size[1:]),
        "mean": tuple(expected.mean),
        "std": tuple(expected.std),
        "eval_interpolation": "bicubic" if expected.interpolation == "bicubic" else "bilinear",
    }


def suggest_batch(images: int, most: int = 32) -> int:
    """Return the batch size, or less where it leaves a single image over, which has no batch statistics.

    >>> [suggest_batch(n) for n in (280, 33, 65, 7, 1)], suggest_batch(7, 1)
    ([32, 31, 31, 7, 1], 1)
    """
    largest = min(most, images)
    for size in range(largest, 1, -1):
        if images % size != 1:
            return size
    return largest


@dataclass(frozen=True)
class Job:
    """The request and the images.

    calibration: how temperature and threshold are fitted. initial: which weights the backbone starts from. print_line:
    called with every line that is said. advance: see `Advance`. outliers: OOD images. log: the lines so far.
    """

    runs: Path
    request: Request
    calibration: Calibration
    photos: PhotoFolder
    initial: InitialWeights
    device: torch.device
    print_line: Callable[[str], object]
    advance: Advance
    outliers: FolderSet | None = None
    log: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Print a line and keep it for the report page."""
        self.log.append(line)
        self.print_line(line)

    @property
    def class_weight(self) -> tuple[float, ...] | None:
        """The weight of each class in the loss; None: they count the same."""
        if self.request.class_weights == "none":
            return None
        return balanced_weight(self.photos.parts["train"].labels, len(self.photos.classes))

    def part_that_chooses(self, validation: Predictions) -> Predictions:
        """Return the predictions that make choices: all; with a promise one half, as the other half tests it."""
        return validation if self.request.risk is None else halves(validation)[0]

    def configure(self, *, epochs: int, init: str = "", method: str = "") -> TrainConfig:
        """Return the configuration of fine-tuning, by default with the method asked for, or of the probe: 0 epochs."""
        how = {"method": method or self.request.method} if epochs else {"method": "dnn", "freeze": "always"}
        train_images = self.photos.parts["train"]
        config = configure(
            BASE,
            **how,
            **RECIPE,
            **AUGMENTATION[self.request.augmentation],
            **expected_images(self.request),
            train_set=train_images.name,
            network=self.request.backbone,
            init=init or self.request.init,
            epochs=epochs,
            batch_size=suggest_batch(len(train_images), self.request.batch_size),
            lr=self.request.lr,
            min_lr=min(_MIN_LR, self.request.lr),
            precision=self.request.precision,
            warmup_epochs=min(1.0, epochs / 10),
            seed=self.request.seed,
        )
        if epochs and self.class_weight is not None:
            loss = CrossEntropy(weight=self.class_weight)
            config = replace(config, objective=replace(config.objective, loss=loss))  # type: ignore[call-arg]
        return config

    def describe(self) -> str:
        """Return lines about what was chosen before anything is measured."""
        config, request = self.configure(epochs=1), self.request
        flag = "--freeze" if request.freeze else "--epochs 0"
        training = f"a linear probe on stored features of the frozen backbone ({flag})"
        if request.epochs != 0:
            training = (
                f"a linear probe on stored features, then all weights: {request.method} (--method), AdamW at "
                f"{config.lr:g} (--lr), batches of {config.batch_size}, augmentation {request.augmentation}"
            )
        return (
            f"backbone     {config.network} (--backbone) on images of {config.image_size} pixels (--image-size)\n"
            f"training     {training}, class weights {request.class_weights} (--class-weights)\n"
            f"weights      {str(self.initial).removeprefix('init: ')}"
        )

    def work_folder(self, *asked: object) -> Path:
        """Return the folder of the plan and the probes: named by the request, the weights, train and validation images.

        Other test images leave the training as it is, so that the same run is tested again.
        """
        config = resolve(self.configure(epochs=1), self.device)
        request = (self.request.minutes, self.request.epochs, self.request.risk is not None, *asked)
        images = [self.photos.parts[role].fingerprint for role in ("train", "validation")]
        parts = [fingerprint(config), *images, self.device.type, *map(str, request)]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
        return self.runs / f"finetune-{self.photos.path.name}-{key}"

    def plan(self, work: Path, seconds: float, *, against: str = "") -> Plan:
        """Return the epochs for so many seconds, or those that an earlier call has stored in `work`.

        against: a second method; the pace is then the mean of both.
        """
        path, epochs, images = work / "plan.json", self.request.epochs, self.photos.parts["train"]
        if path.is_file():
            return Plan(**read_table(path))
        if epochs is not None:
            plan = Plan(epochs, epochs)
        else:
            self.say("pace         is measured on a few images; it decides the epochs")
            names = [self.request.method, against] if against else [self.request.method]
            pace = fmean(measure_pace(self.configure(epochs=1, method=name), images, self.device) for name in names)
            plan = plan_epochs(len(images), pace=pace, seconds=seconds)
        write_table(path, asdict(plan))
        return plan

    def write_probe(self, path: Path) -> None:
        """Fit the linear probe and write the backbone with its head, unless an earlier call has done so."""
        if path.is_file():
            return
        train_images, validation_images = self.photos.parts["train"], self.photos.parts["validation"]
        count = len(train_images) + len(validation_images)
        self.say(f"features     of {count:,} images are computed by the frozen backbone, then the probe is fitted")
        begun = time.monotonic()
        config = resolve(self.configure(epochs=0), self.device)
        model = build_network(config, len(self.photos.classes))
        load_initial_weights(model, config, input_shape=(3, config.image_size, config.image_size))
        model.to(self.device)
        self.advance("features", 0, count)
        predict = partial(
            predict_files,
            model,
            config=config,
            classes=self.photos.classes,
            advance=lambda done: self.advance("features", done, count),
        )
        train, validation = predict(train_images), predict(validation_images)
        head = fit_probe(train, self.part_that_chooses(validation), self.class_weight)
        model.head.load_state_dict({"weight": head.weight, "bias": head.bias})
        assert train.features is not None
        save_tensors(path.with_name(FEATURES), {"features": train.features, "labels": train.labels}, {})
        # A run is named by the checksum of this file: images of other names or classes may give the same weights.
        images = f"{train_images.fingerprint}-{validation_images.fingerprint}"
        save_tensors(path, model.state_dict(), {"decay": str(head.decay), "images": images})
        self.say(
            f"probe        {percent(head.accuracy)} of the validation images right, decay {head.decay:g} chosen on "
            f"them, {time.monotonic() - begun:.0f} s"
        )
