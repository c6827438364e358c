"""Spatter: drops of water, or mud, on the lens."""

from __future__ import annotations

import torch
from torch import Tensor

from regmixup.data.corruptions.edges import canny, chamfer_distance, equalize, filter3, mean3
from regmixup.data.corruptions.linear import gaussian
from regmixup.data.corruptions.pixels import luma, normal, truncate
from regmixup.mixing import to_float

_TURQUOISE = (175 / 255, 238 / 255, 238 / 255)
_BROWN = (63 / 255, 42 / 255, 20 / 255)
_SLOPE = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))


def spatter(
    images: Tensor,
    mean: float,
    spread: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: float,
    *,
    generator: torch.Generator | None,
) -> Tensor:
    """Drops where N(mean, spread^2), smoothed by a Gaussian of `sigma` pixels, exceeds `threshold`.

    Water (mud = 0) adds `strength` times a pale turquoise where `water` is brightest. Mud (mud = 1) covers: the drops'
    mask, smoothed by a Gaussian of `strength` pixels and set to 0 below 0.8, blends the image with brown.
    images: uint8 (N, C, H, W); on grey images the colours become their luma.
    """
    count, channels, height, width = images.shape
    field = normal((count, 1, height, width), images.device, generator) * spread + mean
    field = gaussian(field, sigma)
    x = to_float(images)
    colour = torch.tensor(_BROWN if mud else _TURQUOISE, device=x.device).view(1, 3, 1, 1)
    colour = colour if channels == 3 else luma(colour)
    if not mud:
        field = torch.where(field < threshold, 0.0, field)
        shine = water((field * 255).floor_().clamp_(0, 255).squeeze(1)).unsqueeze(1)
        return truncate(x + (strength * shine) * colour)
    cover = gaussian((field > threshold).float(), strength)
    cover = torch.where(cover < 0.8, 0.0, cover)
    return truncate(x * (1 - cover) + cover * colour)


def water(drops: Tensor) -> Tensor:
    """How light plays on the drops: (N, H, W) levels, 0 outside them -> shine with maximum 1 per image.

    The distance from the drops' Canny edges (thresholds 50 and 150), cut at 20, smoothed, equalised, and turned into a
    slope lit from the lower right by a 3x3 filter, smoothed again, times the drops. Levels are whole numbers as in
    OpenCV's 8-bit images. Where no drop shines the result is 0 (CIFAR-C divides 0 by 0 there).
    """
    distance = chamfer_distance(canny(drops, 50, 150), 20)
    height = equalize(mean3(distance).floor_())
    slope = filter3(height, _SLOPE).clamp_(0, 255)
    shine = drops * mean3(slope).round_()
    return shine / shine.amax(dim=(1, 2), keepdim=True).clamp_min(1e-12)
