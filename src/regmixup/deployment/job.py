"""A fine-tuning job: what was asked for, the images, and how each training of it is configured.

The plan and the probe's weights are stored in `RUNS/finetune-NAME-HASH`: the same command goes on where it was stopped.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regmixup.data.decode import decode_all, open_rgb
from regmixup.data.folders import image_files
from regmixup.deployment.calibration import AUTO, Calibration, first_rows
from regmixup.deployment.folder import Advance, PhotoFolder, find_folder, inspect
from regmixup.deployment.probe import (
    Features,
    Plan,
    compute_features,
    fit_probe,
    measure_pace,
    plan_epochs,
    wanted_epochs,
)
from regmixup.deployment.request import Request
from regmixup.losses import CrossEntropy, balanced_weight
from regmixup.names import percent
from regmixup.networks import build, check_network
from regmixup.networks.contract import LinearHead
from regmixup.storage import check_writable, read_table, save_tensors, write_table
from regmixup.training.config import TrainConfig, check_present, choose_device, configure, resolve
from regmixup.training.initial_weights import InitialWeights, identify, load_initial_weights
from regmixup.training.run import Run

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
    "orient": True,
}
"""The recipe for training all weights, beside size, epochs and batches."""


def prepare(
    path: str | Path, runs: str | Path, request: Request, *, say: Callable[[str], object], advance: Advance
) -> Job:
    """Check what can be checked before training, read the folder, and say what was found and chosen."""
    request.check()
    Calibration(acceptance=request.acceptance, risk=request.risk, score=request.score)  # checks them now
    check_writable(Path(runs) / "finetune.json")
    device = choose_device(request.device)
    check_present(device)
    check_method(request)
    check_network(request.backbone)
    ood_files = _find_ood(request, find_folder(path))
    request = replace(request, init=identify(request.init, request.backbone))  # last, as it may download the weights
    initial = _check_weights(request)
    say(f"reading      {path}: every file is decoded once")
    photos = inspect(path, advance)
    job = Job(Path(runs), request, photos, initial, device, print_line=say, advance=advance, ood_files=ood_files)
    job.say(photos.describe(class_weights=request.class_weights))
    job.say(job.describe())
    return job


def _find_ood(request: Request, photos: Path) -> list[str]:
    """Return the image files of the OOD folder, none without one; raise unless all can be decoded."""
    if request.ood is None:
        return []
    if request.score != AUTO:
        raise ValueError(f"ood must be left out unless score is auto, which it chooses, got score {request.score}")
    folder = Path(request.ood).expanduser().resolve()
    files = image_files(folder) if folder.is_dir() else []
    if not files or folder.is_relative_to(photos) or photos.is_relative_to(folder):
        raise ValueError(f"ood must be a folder of images outside of {photos}, got {folder} with {len(files)} images")
    decode_all(files, lambda file: open_rgb(file).resize((1, 1)))
    return files


def check_method(request: Request) -> None:
    """Raise unless the method trains one network with a linear head."""
    config = configure("imagenet-resnet50", request.method)
    if config.members > 1 or not isinstance(config.head, LinearHead) or config.constraint is not None:
        raise ValueError(
            f"method must be one that trains a single network with a linear head, such as regmixup, mixup or dnn, "
            f"got {request.method}"
        )
    if request.class_weights == "balanced" and not hasattr(config.objective, "loss"):
        raise ValueError(f"class_weights must be none for {request.method}, which has a loss of its own, got balanced")


def _check_weights(request: Request) -> InitialWeights:
    """Raise if the weights do not suit the backbone; return which of them it takes, a new head aside."""
    config = configure("imagenet-resnet50", network=request.backbone, init=request.init, **expected_images(request))
    with torch.random.fork_rng([]):
        model = build(request.backbone, num_classes=1, image_size=config.image_size)
    return load_initial_weights(model, config, input_shape=(3, config.image_size, config.image_size))


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


def suggest_batch(images: int) -> int:
    """Return the batch size: 32, or less where it leaves a single image over, which has no batch statistics.

    >>> [suggest_batch(n) for n in (280, 33, 65, 7, 1)]
    [32, 31, 31, 7, 1]
    """
    return next((size for size in range(min(32, images), 1, -1) if images % size != 1), images)


@dataclass(frozen=True)
class Job:
    """The request and the images.

    initial: which weights the backbone starts from. print_line: called with every line that is said. advance: called
    with the images done. ood_files: images that choose the score. log: the lines said so far.
    """

    runs: Path
    request: Request
    photos: PhotoFolder
    initial: InitialWeights
    device: torch.device
    print_line: Callable[[str], object]
    advance: Advance
    ood_files: Sequence[str] = ()
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

    @property
    def choosing_rows(self) -> Tensor:
        """The validation images that make choices. With a promise, half of them test it and have no part in any."""
        size = len(self.photos.parts["validation"])
        return torch.arange(size) if self.request.risk is None else first_rows(size)

    def configure(self, *, epochs: int, init: str = "") -> TrainConfig:
        """Return the configuration of fine-tuning or, with 0 epochs, of the probe."""
        how: dict[str, Any] = {"method": self.request.method} if epochs else {"method": "dnn", "freeze": "always"}
        train_images = self.photos.parts["train"]
        config = configure(
            "imagenet-resnet50",
            **how,
            **RECIPE,
            **expected_images(self.request),
            train_set=train_images.name,
            network=self.request.backbone,
            init=init or self.request.init,
            epochs=epochs,
            batch_size=suggest_batch(len(train_images)),
            warmup_epochs=min(1.0, epochs / 10),
            seed=self.request.seed,
        )
        if epochs and self.class_weight is not None:
            loss = CrossEntropy(weight=self.class_weight)
            config = replace(config, objective=replace(config.objective, loss=loss))  # type: ignore[call-arg]
        return config

    def describe(self) -> str:
        """Return lines about what was chosen before anything is measured."""
        config = self.configure(epochs=1)
        return (
            f"backbone     {config.network} (--backbone) on images of {config.image_size} pixels (--image-size)\n"
            f"training     a linear probe on stored features, then all weights: {self.request.method} (--method), "
            f"AdamW at {config.lr:g}, batches of {config.batch_size}, class weights {self.request.class_weights} "
            "(--class-weights)\n"
            f"weights      {str(self.initial).removeprefix('init: ')}"
        )

    def work_folder(self, *asked: object) -> Path:
        """Return the folder of the plan and the probes: named by the request, the images and the weights."""
        config = resolve(self.configure(epochs=1), self.device)
        request = (self.request.minutes, self.request.epochs, self.request.risk is not None, *asked)
        parts = [Run(Path(), config).fingerprint, self.photos.fingerprint, self.device.type, *map(str, request)]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
        return self.runs / f"finetune-{self.photos.path.name}-{key}"

    def plan(self, work: Path, seconds: float) -> Plan:
        """Return the epochs for so many seconds, or those that an earlier call has stored in `work`."""
        path, epochs, images = work / "plan.json", self.request.epochs, self.photos.parts["train"]
        if path.is_file():
            return Plan(**read_table(path))
        if epochs is not None:
            plan = Plan(epochs, epochs)
        else:
            self.say("pace         is measured on a few images; it decides the epochs")
            pace = measure_pace(self.configure(epochs=1), images, self.device)
            plan = plan_epochs(wanted_epochs(len(images)), num_train=len(images), pace=pace, seconds=seconds)
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
        shape = (3, config.image_size, config.image_size)
        with torch.random.fork_rng([]):
            model = Run(Path(), config).build(num_classes=len(self.photos.classes), input_shape=shape)
        load_initial_weights(model, config, input_shape=shape)
        model.to(self.device)
        self.advance("features", 0, count)
        features = partial(
            compute_features,
            model,
            config=config,
            classes=self.photos.classes,
            advance=lambda done: self.advance("features", done, count),
        )
        train_features, (values, labels) = features(train_images), features(validation_images)
        validation = Features(values[self.choosing_rows], labels[self.choosing_rows])
        head = fit_probe(train_features, validation, len(self.photos.classes), self.class_weight)
        assert isinstance(model.head, torch.nn.Linear)
        with torch.no_grad():
            model.head.weight.copy_(head.weight)
            model.head.bias.copy_(head.bias)
        save_tensors(path, model.state_dict(), {"decay": str(head.decay)})
        self.say(
            f"probe        {percent(head.accuracy)} of the validation images right, decay {head.decay:g} chosen on "
            f"them, {time.monotonic() - begun:.0f} s"
        )
