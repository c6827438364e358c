"""Named training configurations: everything about a run but its method and seed. Plain data, no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from regmixup.config import (
    Bounds,
    Count,
    CountOrZero,
    NotNegative,
    Number,
    Positive,
    PositiveShare,
    Share,
    check_count,
    check_fields,
    check_number,
    introduced,
)
from regmixup.names import check_name

BACKBONE = "timm/tf_efficientnet_lite0"
"""The network that `finetune` trains by default: 3.4 million weights, of layers that every runtime has."""

_WITHOUT_EFFECT = {
    ("sharpness", "none"): ("rho",),
    ("average", "none"): ("average_from", "average_lr"),
    ("rand_augment", 0): ("magnitude",),
    ("optimizer", "sgd"): ("betas",),
    ("optimizer", "adamw"): ("momentum", "nesterov"),
    ("schedule", "step"): ("min_lr",),
    ("schedule", "cosine"): ("milestones", "lr_decay"),
    ("schedule", "linear"): ("milestones", "lr_decay"),
    ("warmup_epochs", 0): ("warmup_lr",),
}
"""Values of fields, with the other fields that have no effect beside them."""


def without_path(init: str) -> str:
    """Return what identifies initial weights: a file's checksum, where it is known, without the path; timm's as it is.

    >>> without_path("/home/me/resnet50.pth@sha256:e3b0"), without_path("timm@sha256:e3b0"), without_path("")
    ('sha256:e3b0', 'timm@sha256:e3b0', '')
    """
    source, _, checksum = init.rpartition("@")
    return checksum if source not in ("", "timm") and checksum.startswith("sha256:") else init


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The training of a network: SGD with Nesterov momentum, or AdamW, on cropped, flipped, shuffled batches."""

    retired: ClassVar[dict[str, Any]] = {
        "transform": "",
        "layer_decay": 1.0,
        "sampling": "uniform",
        "random_erasing": 0.0,
    }
    """Fields that left with the value that stored configurations must have; see `config.decode`."""
    train_set: str
    """Dataset to train on, for example digits/train."""
    network: str
    """Network; see `regmixup list networks`."""
    init: str = introduced("", identity=without_path)
    """Weights to start from. timm: timm's pretrained weights, from its cache or downloaded. Otherwise the path of a
    .safetensors, .pth or .pt file with timm's, torchvision's or our names; by-order:PATH if the names differ but the
    order is the same. Empty: random weights."""
    epochs: int
    """Passes over the train set, without the cool-down. The model is that of the last epoch, unless `select` says
    otherwise. With 0 epochs, it has the weights of `init`."""
    select: Literal["last", "val-accuracy", "val-nll", "val-brier"] = introduced("last")
    """Epoch to use as the model: the last, or the best on the `validation` set, which is predicted after every epoch.
    Of equal epochs, the first wins. The checkpoint also keeps the last weights."""
    validation: str = introduced("")
    """Dataset to predict after every epoch, for the history and for `select`; never a test set. Empty: none, or the one
    that belongs to the train set if `select` needs one."""
    batch_size: Count = 128
    """Clean images per step, over all processes. The partial last batch is kept."""
    shards: Count | None = None
    """Parts that a batch is split into, each with its own partners and batch-norm statistics. The gradient is that of
    the whole batch. Processes take equal numbers of parts, one after the other. None: one part per process."""
    batch_norm: Literal["local"] = "local"
    """In training, batch norm uses the statistics of each shard; running statistics are means over the shards. This is
    the only value; it is part of fingerprints."""
    lr: Positive = 0.1
    """Largest learning rate."""
    schedule: Literal["cosine", "step", "linear"] = "cosine"
    """cosine: falls to `min_lr`, per step. step: is multiplied by `lr_decay` at each of the `milestones`. linear: falls
    in a straight line from the end of the warm-up to `min_lr`, per step; with a long warm-up, a triangle."""
    min_lr: float = 0.0
    """Learning rate at which the cosine or the line ends."""
    milestones: tuple[Count, ...] = ()
    """Epochs at which the step schedule lowers the learning rate. Those beyond the last epoch have no effect."""
    lr_decay: NotNegative = 0.1
    """Factor by which the step schedule multiplies the learning rate."""
    warmup_epochs: NotNegative = 0.0
    """Epochs of linear warm-up from `warmup_lr` to `lr`. They are the first epochs of the schedule, not extra ones."""
    warmup_lr: float = 0.0
    """Learning rate at the first step of the warm-up."""
    cooldown_epochs: CountOrZero = 0
    """Extra epochs after the schedule, at the learning rate that it ends with."""
    optimizer: Literal["sgd", "adamw"] = introduced("sgd")
    """sgd: with momentum and coupled weight decay. adamw: Adam with decoupled weight decay."""
    momentum: Share = 0.9
    """Momentum of SGD."""
    nesterov: bool = True
    """Nesterov momentum of SGD."""
    betas: tuple[Share, ...] = introduced((0.9, 0.999))
    """Decay rates of AdamW's running means of the gradient and of its square."""
    weight_decay: NotNegative = 5e-4
    """Weight decay. SGD adds it to the gradient. AdamW multiplies it by the learning rate and subtracts it from the
    weights."""
    decay_on: Literal["all", "weights", "backbone"] = "all"
    """Which parameters decay: all (the paper on CIFAR), weights but not biases and norms (timm), or all but the head
    (SNGP)."""
    clip_norm: Positive | None = introduced(None)
    """Largest norm of the gradient of all weights together. Longer gradients are scaled down to it."""
    freeze: CountOrZero | Literal["always"] = introduced(0)
    """Epochs at the start in which only the head learns, with the backbone in evaluation mode. always: in all
    epochs."""
    ema: Share = introduced(0.0)
    """Decay d of a running mean of weights and buffers (EMA), which is then the model for evaluation and export; 0 for
    none. After t updates the decay is min(d, (1 + t) / (10 + t)), so that a short run forgets its initial weights."""
    average: Literal["none", "swa"] = introduced("none")
    """swa: the model is the mean of the weights at the ends of the last epochs (SWA), with batch-norm statistics from
    the images that the objective forwards. none: the model has the last weights, or the running mean if `ema` is
    set."""
    average_from: Share = introduced(0.75)
    """Share of the epochs after which SWA begins."""
    average_lr: float | None = introduced(None)
    """Constant learning rate while SWA averages, at most `lr`. None: the schedule's learning rate."""
    sharpness: Literal["none", "sam", "friendly"] = introduced("none")
    """sam: update with the gradient at a nearby point where the loss is high, at twice the cost (SAM). friendly: find
    this point from the gradient minus its running mean (Friendly-SAM)."""
    rho: Positive = introduced(0.05)
    """Distance of SAM's nearby point from the weights."""
    crop_padding: CountOrZero = 4
    """Zero pixels that pad each side of an image before a random crop; 0 for no crops."""
    flip: bool = True
    """Random left-right flips."""
    image_size: Count = 224
    """Side of the random resized crops when training on image files; images in memory keep their own size."""
    orient: bool = introduced(False)
    """Rotate image files by their EXIF orientation, as photo viewers do, in training, in evaluation and wherever the
    model is used. Off: pixels as they are stored, as in torchvision's ImageFolder and on ImageNet."""
    crop_area: PositiveShare = introduced(0.08)
    """Smallest share of an image file's area that a random resized crop shows; 1 for almost the whole image."""
    interpolation: Literal["bilinear", "random"] = "bilinear"
    """Interpolation for crops of image files. random: bilinear or bicubic, drawn for every image (timm)."""
    color_jitter: NotNegative = 0.4
    """Strength of brightness, contrast and saturation changes on image files; 0 for none."""
    rand_augment: CountOrZero = introduced(0)
    """Number of torchvision's RandAugment operations per image, 2 in its paper; 0 for none. Worker processes apply
    them, even to images in memory, which must be uint8."""
    magnitude: Annotated[CountOrZero, Bounds(check_number, most=30)] = introduced(9)
    """Magnitude of RandAugment's operations, from 0 to 30."""
    cutout: CountOrZero = introduced(0)
    """Side in pixels of a square of each image that is filled with `mean` (Cutout): 16 on CIFAR-10 and 8 on CIFAR-100
    in its paper; an odd one counts as 1 less, 0 is none. The centre is uniform over the pixels. It is the last
    operation. The transform named cutout fills with the mean of the batch instead."""
    eval_interpolation: Literal["bilinear", "bicubic"] = introduced("bilinear")
    """Interpolation for evaluation on image files, which are resized to 8/7 of `image_size` before the central 0.875 is
    cut out."""
    mean: tuple[Number, ...] = (0.4914, 0.4822, 0.4465)
    """Per-channel mean for the network's input normalisation, on pixels in [0, 1]."""
    std: tuple[Positive, ...] = (0.2023, 0.1994, 0.2010)
    """Per-channel standard deviation for the network's input normalisation."""
    dropout: Share | None = None
    """Dropout rate. None: the network's own."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """bfloat16: forward passes under autocast. tf32: products of float32 numbers rounded to TF32, on CUDA. float32:
    nothing is rounded. auto: bfloat16 on CUDA and float32 elsewhere."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.epochs == 0 and not self.init:
            raise ValueError(f"epochs must be an integer >= 1, got {self.epochs}: 0 keeps the weights that init names")
        check_count("epochs", self.epochs, least=0 if self.init else 1)
        self._check_rates()
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean and std must have one value per channel, got {self.mean} and {self.std}")

    def _check_rates(self) -> None:
        """Check the numbers of the optimizer, the schedule and the augmentation beyond their types."""
        for name in ("min_lr", "warmup_lr"):
            check_number(name, getattr(self, name), least=0, most=self.lr)
        if self.average_lr is not None:
            check_number("average_lr", self.average_lr, above=0, most=self.lr)
        if self.average == "swa" and (self.ema > 0 or self.select != "last"):
            raise ValueError(
                f"average must be none with a running mean or a selected epoch, got swa, ema {self.ema} and select "
                f"{self.select}"
            )
        if self.optimizer == "adamw" and len(self.betas) != 2:
            raise ValueError(f"betas must be two numbers, got {self.betas}")
        if self.cutout == 1:
            raise ValueError("cutout must be 0 or at least 2, got 1: an odd side counts as 1 less")
        if self.warmup_epochs > self.epochs:
            raise ValueError(
                f"warmup_epochs must be at most epochs, got {self.warmup_epochs} and {self.epochs}: where the recipe's "
                "warm-up is too long for so few epochs, change it as well (--warmup-epochs)"
            )
        # A milestone may lie beyond the end: whoever shortens a recipe need not cut its milestones.
        if any(late <= early for early, late in pairwise(self.milestones)):
            raise ValueError(f"milestones must increase, got {self.milestones}")
        if self.schedule == "step" and not self.milestones:
            raise ValueError("milestones must name at least one epoch for the step schedule, got ()")

    def check_settings(self, usual: Mapping[str, Any]) -> None:
        """Raise for values that would have no effect beside others; runs may have stored some.

        usual: values of the recipe and method; who changes the schedule need not take their milestones out.
        """
        for (field, value), names in _WITHOUT_EFFECT.items():
            for name in names if getattr(self, field) == value else ():
                got, default = getattr(self, name), getattr(Recipe, name)
                if got not in (default, usual[name]):
                    because = f"with {field} {value}, where it has no effect"
                    raise ValueError(f"{name} must be {default} {because}, got {got}")

    def frozen_at(self, epoch: int) -> bool:
        """Return True if the head alone learns in an epoch, counted from 0."""
        return self.freeze == "always" or epoch < self.freeze

    @property
    def num_shards(self) -> int:
        """Return the number of shards of a batch; 1 unless set."""
        return self.shards or 1

    @property
    def total_epochs(self) -> int:
        """Return all passes over the train set: the schedule's and those of the cool-down; without the first, none."""
        return self.epochs + self.cooldown_epochs if self.epochs else 0

    def lr_at(self, progress: float) -> float:
        """Return the learning rate after `progress` epochs (a fraction within an epoch).

        >>> recipe = get("imagenet-resnet50")
        >>> [round(recipe.lr_at(epoch), 5) for epoch in (0, 1.5, 3, 50, 100, 109)]
        [0.0001, 0.05005, 0.09978, 0.05001, 1e-05, 1e-05]
        """
        if self.average_lr is not None and self.average == "swa" and progress >= self.average_from * self.total_epochs:
            return self.average_lr
        if progress < self.warmup_epochs:
            return self.warmup_lr + (self.lr - self.warmup_lr) * (progress / self.warmup_epochs)
        if self.schedule == "step":
            return self.lr * self.lr_decay ** sum(at <= progress for at in self.milestones if at < self.epochs)
        if self.schedule == "linear":
            left = max(0.0, self.epochs - progress) / max(self.epochs - self.warmup_epochs, 1e-12)
            return self.min_lr + (self.lr - self.min_lr) * left
        cosine = math.cos(math.pi * min(1.0, progress / self.epochs))
        return self.min_lr + (self.lr - self.min_lr) * (1 + cosine) / 2


_CIFAR100: dict[str, Any] = {"mean": (0.5071, 0.4867, 0.4408), "std": (0.2675, 0.2565, 0.2761)}


def _cifar(dataset: str, network: str) -> Recipe:
    """Return the paper's recipe for CIFAR, the same for every network."""
    pixels = _CIFAR100 if dataset == "cifar100" else {}
    return Recipe(
        train_set=f"{dataset}/train", network=network, epochs=350, schedule="step", milestones=(150, 250), **pixels
    )


def _resnet18(dataset: str, epochs: int) -> Recipe:
    """Return the recipe of other papers for ResNet-18 on CIFAR, so that our rows are comparable with theirs.

    OpenOOD v1.5 on both datasets: SGD with Nesterov momentum 0.9, weight decay 5e-4, batch 128, a cosine from 0.1 to
    1e-6 per step, flips and crops from 4 pixels of padding, its normalisation; 100 epochs. SURE (Li et al., 2024): the
    same rate, decay and batch for 200 epochs, which is what CIFAR-100 takes here. Its code has no Nesterov momentum,
    trains on 90 % of the train set and keeps the epoch with the best validation accuracy; here it is the whole train
    set and the last epoch.
    """
    pixels = _CIFAR100 if dataset == "cifar100" else {"std": (0.2470, 0.2435, 0.2616)}
    return Recipe(train_set=f"{dataset}/train", network="resnet18", epochs=epochs, min_lr=1e-6, **pixels)


RECIPES = {
    "digits": Recipe(
        train_set="digits/train",
        network="small",
        epochs=40,
        batch_size=64,
        crop_padding=1,
        flip=False,
        mean=(0.307,),
        std=(0.377,),
    ),
    **{
        f"{dataset}-{network}": _cifar(dataset, network)
        for dataset in ("cifar10", "cifar100")
        for network in ("wrn28-10", "resnet50", "densenet121", "pyramidnet200")
    },
    "cifar10-resnet18": _resnet18("cifar10", 100),
    "cifar100-resnet18": _resnet18("cifar100", 200),
    "imagenet-resnet50": Recipe(
        train_set="imagenet/train",
        network="timm/resnet50",
        epochs=100,
        min_lr=1e-5,
        warmup_epochs=3,
        warmup_lr=1e-4,
        cooldown_epochs=10,
        weight_decay=1e-4,
        decay_on="weights",
        interpolation="random",
        eval_interpolation="bicubic",
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    ),
}
"""The paper's, the same for two more networks, those of other papers for ResNet-18, and one for digits."""


def get(name: str) -> Recipe:
    """Return a recipe by name, or raise with the nearest one."""
    return RECIPES[check_name("recipe", name, RECIPES)]
