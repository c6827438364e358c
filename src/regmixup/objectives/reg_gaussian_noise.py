"""RegGaussianNoise: plain cross-entropy, regularised by cross-entropy on noisy images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regmixup.config import check_number
from regmixup.losses import image_losses
from regmixup.mixing import Draw, ImageSize
from regmixup.objectives._passes import Passes, forward_both
from regmixup.objectives.erm import clean_loss
from regmixup.objectives.gaussian_noise import GaussianNoise, add_noise
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class RegGaussianNoise(GaussianNoise):
    """CE(f(x), y) + eta CE(f(x + sigma e), y): equation (3) with a Gaussian vicinity. An extension of this project.

    sigma and samples as in `GaussianNoise`; eta, scale, passes and loss as in `RegMixup`, and eta = 0 is ERM exactly.
    """

    eta: float = 1.0
    """>= 0: weight of the noisy term; 0 is ERM exactly."""
    scale: Literal["mean", "sum"] = "mean"
    """mean: divided by 1 + eta; sum: not."""
    passes: Passes = "joint"
    """joint: clean and noisy images in one forward pass; separate: in two; separate-clean: as in `RegMixup`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eta", self.eta, least=0)

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        return Draw() if self.eta == 0 else super().draw(batch_size, image_size, generator)

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.eta == 0:
            return clean_loss(model, x, y, self.loss)
        logits, noisy_logits = forward_both(model, x, add_noise(x, draw, self), self.passes)
        clean = image_losses(logits, y, self.loss).mean()
        noisy = image_losses(noisy_logits, y, self.loss).mean()
        total = clean + self.eta * noisy
        if self.scale == "mean":
            total = total / (1 + self.eta)
        return LossOutput(loss=total, logits=logits, parts={"clean": clean.detach(), "noisy": noisy.detach()})
