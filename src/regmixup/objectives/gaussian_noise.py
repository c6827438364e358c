"""Gaussian noise: vicinal risk minimisation with a normal distribution around every image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regmixup.config import check_count, check_number, introduced
from regmixup.losses import LossLike, image_losses
from regmixup.mixing import Draw, ImageSize, full_precision, repeat, sample_normal, take
from regmixup.networks.outputs import logits_of
from regmixup.objectives._base import Objective
from regmixup.types import LossOutput


@dataclass(frozen=True)
class NoiseDraw(Draw):
    """noise: float32 of the shape of x, standard normal; with a leading m for m samples."""

    noise: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Objective):
    """Cross-entropy on x + sigma e with the label kept, e standard normal per pixel. An extension of this project.

    Section 2 of the paper names it as an instance of vicinal risk minimisation: with P(x, y) around (x_i, y_i) the
    product of N(x_i, sigma^2 I) and a point mass on y_i, the integral of Eq. (1) is estimated by Eq. (2),

        loss = 1/N sum_i 1/m sum_j CE(f(x_i + sigma e_ij), y_i).

    Its minimiser is the base classifier of randomised smoothing (Lecuyer et al., 2019; Cohen et al., 2019).
    `RegGaussianNoise` has the clean images beside the noisy ones.

    >>> import torch
    >>> model = torch.nn.Flatten()  # the two pixels are the logits
    >>> x, y = torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1), torch.tensor([1])
    >>> draw = NoiseDraw(noise=torch.tensor([10.0, 0.0]).reshape(1, 2, 1, 1))
    >>> round(GaussianNoise(sigma=0.1)(model, x, y, draw=draw).loss.item(), 4)  # both logits are 1: log 2
    0.6931
    """

    sigma: float = 0.1
    """>= 0: standard deviation in units of pixels in [0, 1], that is before the network normalises; 0 is ERM. Noisy
    pixels are not clipped."""
    samples: int = 1
    """m of Eq. (2). The noise is drawn on the generator's device, m N C H W numbers a step."""
    loss: LossLike | None = introduced(None)
    """Another loss of soft targets, such as rm.losses.Focal(); None is cross-entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("sigma", self.sigma, least=0)
        check_count("samples", self.samples)

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        check_count("batch_size", batch_size)
        if not isinstance(image_size, tuple | list):
            raise ValueError(
                f"image_size must be (channels, height, width), because every channel of a pixel has its own noise, or "
                f"x.shape[1:] of inputs that are not images, got {image_size!r}"
            )
        leading = () if self.samples == 1 else (self.samples,)
        return NoiseDraw(noise=sample_normal((*leading, batch_size, *image_size), generator))

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        logits = logits_of(model, add_noise(x, draw, self))
        noisy = image_losses(logits, y, self.loss).mean()
        return LossOutput(loss=noisy, logits=None, parts={"noisy": noisy.detach()})


def add_noise(x: Tensor, draw: Draw, objective: GaussianNoise) -> Tensor:
    """Return x + sigma e, (m N, ...): the m samples of the batch one after the other."""
    leading = () if objective.samples == 1 else (objective.samples,)
    exact = full_precision(x)
    noise = take(draw, "noise", (*leading, *x.shape), objective).to(exact.dtype).reshape(-1, *x.shape[1:])
    return (repeat(exact, objective.samples) + objective.sigma * noise).to(x.dtype)
