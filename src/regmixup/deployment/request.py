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
    """Its pretrained weights: timm for its own (from its cache, else downloaded), or a .safetensors, .pth or .pt file
    with timm's, torchvision's or our names; by-order:PATH where the names differ and the order is the same."""
    method: str = "dnn"
    """The training of all weights after the linear probe, see `regmixup list methods`; dnn is plain cross-entropy,
    no worse than RegMixup on a few hundred images in our tests. --against compares them on yours. A method's own
    values, such as alpha, are those for ImageNet; only `train` has flags for them."""
    minutes: Positive = 10.0
    """The time for everything. Wanted are 3 to 30 epochs of all weights, the fewer the more images there are; as many
    of them are trained as the time allows. If it allows neither all of them nor 5, the linear probe is the model."""
    epochs: CountOrZero | None = None
    """Epochs of fine-tuning, whatever the time; 0 for the linear probe alone."""
    freeze: bool = False
    """Leave the backbone as it is: the linear probe on its features is the model. Takes seconds to minutes, and is hard
    to beat with few images or a large backbone. Without it, all weights are trained after the probe."""
    lr: Positive = 3e-4
    """Largest learning rate of fine-tuning, of AdamW: a tenth of the epochs, at most one, to warm up, then a cosine.
    Lower it if the loss jumps."""
    batch_size: Count = 32
    """Images of a step of fine-tuning. Lower it if memory runs out."""
    augmentation: Literal["none", "light", "standard", "strong"] = "standard"
    """How train images are changed. none: the whole image is stretched to a square and not flipped, for text and
    digits. light: crops of 80 to 100 % of the area, flips. standard: crops of 35 to 100 %, flips, colours by up to
    40 %. strong: also RandAugment, for many epochs."""
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"
    """Numbers of the forward passes in training; auto: bfloat16 on CUDA, float32 elsewhere."""
    image_size: Count | None = None
    """Side of the images; default: that of the backbone's weights."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: every class has the same weight in the loss, however many images it has."""
    acceptance: PositiveShare = 0.95
    """Share of validation images that the threshold accepts; with --risk, at most."""
    risk: InnerShare | None = None
    """Accept so that at most this share of the accepted is wrong, with 95 % confidence."""
    score: str = "entropy"
    """How unsure the model is, which the threshold limits and the report shows: entropy, max_probability,
    dempster_shafer, energy or another score of logits; auto for the one that tells --ood best from validation images,
    which without --ood is max_probability."""
    ood: Path | None = None
    """A folder of images of no class. How well they are told from test images is reported, by the model's score and by
    nearest neighbours in its features. With --score auto they choose the score; otherwise they choose nothing."""
    export: Path | None = None
    """Also write the model as a .pt2 or .onnx file, which runs without this package."""
    tensorboard: bool = False
    """Also write event files of fine-tuning into the run folder, for `tensorboard --logdir runs`; needs
    pip install 'regmixup[tensorboard]'."""
    seed: CountOrZero = 0
    """Decides data order, augmentation, mixing and dropout."""
    device: str | None = None
    """For example cpu or cuda:0; default: the accelerator if there is one."""
    workers: CountOrZero | None = None
    """Processes that decode image files; default: one per core, at most 4."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Request:
        """Return the request with these fields; raise for a name that is none."""
        for name in options:
            check_name("option", name, [field.name for field in fields(cls)])
        return cls(**options)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("epochs", "method", "lr", "batch_size") if self.freeze else ():
            if (value := getattr(self, name)) and value != getattr(Request, name):
                raise ValueError(f"{name} must be left out with freeze, which trains no backbone, got {value}")
        if self.tensorboard and find_spec("tensorboard") is None:
            raise ValueError("tensorboard must be installed for event files: pip install 'regmixup[tensorboard]'")
        if not self.init:
            raise ValueError("init must be timm or the path of a file with weights, got '': a probe needs features")
