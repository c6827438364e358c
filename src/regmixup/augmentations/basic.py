"""The base of all augmentations, and two of a line each: Gaussian noise, and Cutout (DeVries and Taylor, 2017)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from regmixup import mixing
from regmixup.config import Bounds, Checked, NotNegative, check_count
from regmixup.mixing import Draw, ImageSize, can_look, check_images, full_precision, sample_normal, take, to_float


@dataclass(frozen=True, kw_only=True)
class Augmentation(Checked, ABC):
    """Base of all augmentations. A subclass declares its fields and implements `draw` and `apply`."""

    @abstractmethod
    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        """Draw all the randomness for a batch, on the generator's device; image_size as in `Objective.draw`."""

    @abstractmethod
    def apply(self, x: Tensor, draw: Draw) -> Tensor:
        """Return changed images like x, (N, C, H, W) floating point: a pure tensor function. draw: on x's device."""

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return changed images, floating point, of images in uint8 or floating point."""
        return self.apply(to_float(x), self.draw(len(x), tuple(x.shape[1:]), generator).to(x.device))


def as_pixels(x: Tensor, augmentation: object) -> Tensor:
    """Return images as uint8; raise unless they are pixels in [0, 1]."""
    check_images(x)
    if can_look(x) and not bool(((x >= 0) & (x <= 1)).all()):
        raise ValueError(
            f"x must hold pixels, uint8 or floats in [0, 1]: {type(augmentation).__name__} works on them and not on "
            f"normalised images, got values from {float(x.min()):g} to {float(x.max()):g}"
        )
    return (255 * full_precision(x).clamp(0, 1)).round().to(torch.uint8)


@dataclass(frozen=True, kw_only=True)
class NoiseDraw(Draw):
    """noise: (N, C, H, W) float32, standard normal."""

    noise: Tensor


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Augmentation):
    """x + sigma e, e standard normal per pixel: the Gaussian vicinity of Section 2 of the paper. For any inputs."""

    sigma: NotNegative = field(default=0.1, kw_only=False)
    """>= 0: standard deviation in units of pixels in [0, 1], that is before the network normalises. Noisy pixels are
    not clipped. The noise is drawn on the generator's device, N C H W numbers a step."""

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        if not isinstance(image_size, tuple | list):
            raise ValueError(f"image_size must be (channels, height, width) or x.shape[1:], got {image_size!r}")
        return NoiseDraw(noise=sample_normal((batch_size, *image_size), generator))

    def apply(self, x: Tensor, draw: Draw) -> Tensor:
        exact, noise = full_precision(x), take(draw, "noise", tuple(x.shape), self)
        return (exact + self.sigma * noise.to(exact.dtype)).to(x.dtype)


@dataclass(frozen=True, kw_only=True)
class Cutout(Augmentation):
    """A square around a uniform pixel takes the mean colour of the batch; `Recipe.cutout` fills it with its `mean`."""

    side: Annotated[int, Bounds(check_count, least=2)] = field(default=16, kw_only=False)
    """Side in pixels; an odd one counts as 1 less. 16 on CIFAR-10 and 8 on CIFAR-100 in the paper of Cutout."""

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        return Draw(box=mixing.sample_squares(self.side, batch_size, mixing.height_and_width(image_size), generator))

    def apply(self, x: Tensor, draw: Draw) -> Tensor:
        check_images(x)
        inside = mixing.in_box(take(draw, "box", (len(x), 4), self), x)
        return torch.where(inside, full_precision(x).mean(dim=(0, 2, 3), keepdim=True).to(x.dtype), x)
