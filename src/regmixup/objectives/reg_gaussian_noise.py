"""RegGaussianNoise: plain cross-entropy, regularised by cross-entropy on noisy images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regmixup.config import check_count, check_number, introduced
from regmixup.losses import LossLike, image_losses
from regmixup.mixing import Draw, ImageSize, full_precision, repeat, sample_normal, take
from regmixup.objectives._base import Objective
from regmixup.objectives._passes import Passes, forward_both
from regmixup.objectives.erm import clean_loss
from regmixup.types import LossOutput


@dataclass(frozen=True)
class NoiseDraw(Draw):
    """noise: (m N, C, H, W) float32, standard normal: m samples of the batch one after the other."""

    noise: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class RegGaussianNoise(Objective):
    """CE(f(x), y) + eta CE(f(x + sigma e), y), e standard normal per pixel. An extension of this project.

    Equation (3) with a Gaussian vicinity, which Section 2 of the paper names as an instance of vicinal risk
    minimisation: the product of N(x_i, sigma^2 I) and a point mass on y_i around each image.

    >>> model = nn.Flatten()  # the two pixels are the logits
    >>> x, y = torch.tensor([1.0, 2.0]).reshape(1, 2, 1, 1), torch.tensor([1])
    >>> draw = NoiseDraw(noise=torch.tensor([10.0, 0.0]).reshape(1, 2, 1, 1))
    >>> out = RegGaussianNoise(sigma=0.1)(model, x, y, draw=draw)
    >>> round(out.parts["noisy"].item(), 4)  # both logits are 2: log 2
    0.6931
    """

    sigma: float = 0.1
    """>= 0: standard deviation in units of pixels in [0, 1], that is before the network normalises. Noisy pixels are
    not clipped."""
    samples: int = 1
    """m of Eq. (2). The noise is drawn on the generator's device, m N C H W numbers a step."""
    eta: float = 1.0
    """>= 0: weight of the noisy term; 0 is ERM exactly."""
    scale: Literal["mean", "sum"] = "mean"
    """mean: divided by 1 + eta; sum: not."""
    passes: Passes = "joint"
    """joint: clean and noisy images in one forward pass; separate: in two; separate-clean: as in `RegMixup`."""
    loss: LossLike | None = introduced(None)
    """Another loss of soft targets, such as rm.losses.Focal(); None is cross-entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("sigma", self.sigma, least=0)
        check_count("samples", self.samples)
        check_number("eta", self.eta, least=0)

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        if self.eta == 0:
            return Draw()
        if not isinstance(image_size, tuple | list):
            raise ValueError(f"image_size must be (channels, height, width) or x.shape[1:], got {image_size!r}")
        return NoiseDraw(noise=sample_normal((self.samples * batch_size, *image_size), generator))

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.eta == 0:
            return clean_loss(model, x, y, self.loss)
        noise = take(draw, "noise", (self.samples * len(x), *x.shape[1:]), self)
        exact = full_precision(repeat(x, self.samples))
        noisy_x = (exact + self.sigma * noise.to(exact.dtype)).to(x.dtype)
        logits, noisy_logits = forward_both(model, x, noisy_x, self.passes)
        clean = image_losses(logits, y, self.loss).mean()
        noisy = image_losses(noisy_logits, y, self.loss).mean()
        total = clean + self.eta * noisy
        if self.scale == "mean":
            total = total / (1 + self.eta)
        return LossOutput(loss=total, logits=logits, parts={"clean": clean.detach(), "noisy": noisy.detach()})
