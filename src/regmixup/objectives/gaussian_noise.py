"""Gaussian noise: vicinal risk minimisation with a normal distribution around every image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regmixup.config import check_count, check_number
from regmixup.mixing import Draw, cross_entropy, full_precision, sample_normal
from regmixup.objectives._base import check_labels
from regmixup.objectives._vicinal import Vicinal


@dataclass(frozen=True)
class NoiseDraw(Draw):
    """noise: (N, C, H, W) float32, standard normal; with a leading m for m samples."""

    noise: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Vicinal):
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

    part: ClassVar[str] = "noisy"

    sigma: float = 0.1
    """Standard deviation >= 0 in units of pixels in [0, 1], that is before the network normalises; 0 is ERM. Noisy
    pixels are not clipped."""
    samples: int = 1
    """Noisy versions per image, m of Eq. (2). Noise is drawn on the generator's device, m N C H W numbers a step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("sigma", self.sigma, least=0)
        check_count("samples", self.samples)

    def draw(
        self, batch_size: int, image_size: int | tuple[int, ...], generator: torch.Generator | None = None
    ) -> Draw:
        if isinstance(image_size, int) or len(image_size) != 3:
            raise ValueError(
                f"image_size must be (channels, height, width), because every channel of a pixel has its own noise, "
                f"got {image_size!r}"
            )
        return NoiseDraw(noise=sample_normal(self._shape((batch_size, *image_size)), generator))

    def sampled(self, x: Tensor, draw: Draw) -> Tensor:
        noise = self.drawn(draw, "noise", self._shape(tuple(x.shape)))
        exact = full_precision(x)
        return torch.cat([exact + self.sigma * one for one in noise.to(exact.dtype).reshape(-1, *x.shape)]).to(x.dtype)

    def losses(self, logits: Tensor, y: Tensor, draw: Draw) -> Tensor:
        check_labels(y, logits.shape[1])
        return cross_entropy(logits, torch.cat([y] * self.samples))

    def _shape(self, batch: tuple[int, ...]) -> tuple[int, ...]:
        return batch if self.samples == 1 else (self.samples, *batch)
