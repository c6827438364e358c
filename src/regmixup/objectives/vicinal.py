"""Vicinal: plain cross-entropy, regularised by cross-entropy on augmented images that keep their label."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from regmixup.augmentations import Augmentation
from regmixup.config import Count, NotNegative, check_count, introduced
from regmixup.losses import LossLike, image_losses
from regmixup.mixing import Draw, ImageSize, repeat
from regmixup.objectives._base import Objective
from regmixup.objectives._passes import Passes, forward_both
from regmixup.objectives.erm import clean_loss
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class Vicinal(Objective):
    """CE(f(x), y) + eta CE(f(T(x)), y): equation (3) with any augmentation T in place of mixing. An extension of ours.

    T is `rm.PixMix()`, `rm.AugMixChains()`, `rm.Cutout(16)`, `rm.GaussianNoise(0.1)`, or one of your own.
    """

    transform: Augmentation = field(kw_only=False)
    """T, the augmentation: gaussian_noise, cutout, augmix_chains or pixmix."""
    samples: Count = 1
    """m of Eq. (2): augmented versions of each image."""
    eta: NotNegative = field(default=1.0, kw_only=False)
    """>= 0: weight of the augmented term; 0 is ERM exactly."""
    scale: Literal["mean", "sum"] = "mean"
    """mean: divided by 1 + eta; sum: not."""
    passes: Passes = "joint"
    """joint: clean and augmented images in one forward pass; separate: in two; separate-clean: as in `RegMixup`."""
    loss: LossLike | None = introduced(None)
    """Another loss of soft targets, such as rm.losses.Focal(); None is cross-entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.transform, Augmentation):
            raise ValueError(f"transform must be an Augmentation such as rm.PixMix(), got {self.transform!r}")

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        if self.eta == 0:
            return Draw()
        check_count("batch_size", batch_size, least=0)
        return self.transform.draw(self.samples * batch_size, image_size, generator)

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.eta == 0:
            return clean_loss(model, x, y, self.loss)
        changed_x = self.transform.apply(repeat(x, self.samples), draw)
        logits, changed_logits = forward_both(model, x, changed_x, self.passes)
        clean = image_losses(logits, y, self.loss).mean()
        vicinal = image_losses(changed_logits, y, self.loss).mean()
        total = clean + self.eta * vicinal
        if self.scale == "mean":
            total = total / (1 + self.eta)
        return LossOutput(loss=total, logits=logits, parts={"clean": clean.detach(), "vicinal": vicinal.detach()})
