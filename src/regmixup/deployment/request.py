"""The settings of a fine-tuning: fields for Python, flags for the command line. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from regmixup.config import Count, CountOrZero, InnerShare, Positive, PositiveShare, check_fields
from regmixup.names import check_name
from regmixup.recipes import BACKBONE


@dataclass(frozen=True, kw_only=True)
class Request:
    """How to fine-tune, calibrate and export."""

    backbone: str = BACKBONE
    """Network, such as any timm/...; see `regmixup list networks`."""
    init: str = "timm"
    """Pretrained weights of the backbone. timm: timm's own, from its cache or downloaded. Otherwise a .safetensors,
    .pth or .pt file with timm's, torchvision's or our names; by-order:PATH if the names differ but the order is the
    same."""
    method: str = "dnn"
    """Method for training all weights after the linear probe; see `regmixup list methods`. dnn is plain cross-entropy,
    which was no worse than RegMixup on a few hundred images in our tests; --against compares them on your images. A
    method's own values, such as alpha, are those for ImageNet; only `train` has flags for them."""
    minutes: Positive = 10.0
    """Time limit for everything. From 3 to 30 epochs of all weights are wanted, fewer if there are more images; as many
    of them are trained as the time allows. If it allows neither all of them nor 5, the linear probe is the model."""
    epochs: CountOrZero | None = None
    """Epochs of fine-tuning, regardless of --minutes; 0 for the linear probe only."""
    freeze: bool = False
    """Freeze the backbone: the linear probe on its features is the model. This takes seconds to minutes, and is hard to
    beat with few images or a large backbone. Without this flag, all weights are trained after the probe."""
    lr: Positive = 3e-4
    """Largest learning rate of fine-tuning with AdamW. It warms up over a tenth of the epochs (at most one epoch) and
    then follows a cosine. Lower it if the loss jumps."""
    batch_size: Count = 32
    """Images per step of fine-tuning. Lower it if memory runs out."""
    augmentation: Literal["none", "light", "standard", "strong"] = "standard"
    """Augmentation of train images. none: the image, of which a long side is cut to 4:3, is stretched to a square
    and not flipped. light: crops of 80 to 100 % of the area, up to 4:3, flips. standard: crops of 35 to 100 %, flips,
    colour changes of up to 40 %. strong: also RandAugment, for many epochs. The model answers from the centre of an
    image, a square of 7/8 of its shorter side."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """Number format of the forward passes in training. auto: bfloat16 on CUDA, float32 elsewhere."""
    image_size: Count | None = None
    """Side of the images in pixels. Default: that of the backbone's weights."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: every class has the same weight in the loss, however many images it has."""
    acceptance: PositiveShare = 0.95
    """Share of validation images that the threshold accepts; with --risk, the largest share."""
    risk: InnerShare | None = None
    """Choose the threshold so that at most this share of the accepted images is wrong, with 95 % confidence."""
    score: str = "entropy"
    """Score of how unsure the model is, which the threshold limits and the report shows: entropy, max_probability,
    dempster_shafer, energy or another score of logits. auto: the one that best separates validation images from those
    of --ood; without --ood, max_probability."""
    ood: Path | None = None
    """Folder of out-of-distribution images, which belong to none of the classes. The command reports how well they are
    separated from test images, by the model's score and by nearest neighbours in its features. With --score auto they
    choose the score; otherwise they choose nothing."""
    export: Path | None = None
    """Also write the model as a .pt2 or .onnx file, which runs without this package."""
    tensorboard: bool = False
    """Also write event files of fine-tuning into the run folder, for `tensorboard --logdir runs`; needs
    pip install 'regmixup[tensorboard]'."""
    seed: CountOrZero = 0
    """Seed of data order, augmentation, mixing and dropout."""
    device: str | None = None
    """Device, for example cpu or cuda:0. Default: the accelerator if there is one."""
    workers: CountOrZero | None = None
    """Number of processes that decode image files. Default: one per core, at most 4."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Request:
        """Return the request with these fields; raise for a name that is none."""
        for name in options:
            check_name("option", name, [field.name for field in fields(cls)])
        return cls(**options)

    def __post_init__(self) -> None:
        check_fields(self)
        probe = "freeze" if self.freeze else "epochs 0" if self.epochs == 0 else ""
        for name in ("epochs", "method", "lr", "batch_size", "augmentation", "tensorboard") if probe else ():
            if (value := getattr(self, name)) and value != getattr(Request, name):
                raise ValueError(f"{name} must be left out with {probe}, which trains no backbone, got {value}")
        if self.tensorboard and find_spec("tensorboard") is None:
            raise ValueError("tensorboard must be installed for event files: pip install 'regmixup[tensorboard]'")
        if not self.init:
            raise ValueError("init must be timm or the path of a file with weights, got '': a probe needs features")
