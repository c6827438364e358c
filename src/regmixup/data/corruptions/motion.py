"""Motion blur as ImageMagick does it: a trail to one side of each pixel, fading like half a Gaussian."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from regmixup.data.corruptions.pixels import uniform


def motion_blur(images: Tensor, radius: float, sigma: float, *, generator: torch.Generator | None) -> Tensor:
    """A trail at an angle drawn from U(-45, 45) degrees for each image; see `trail`. images: uint8 (N, C, H, W)."""
    angle = uniform((len(images),), images.device, generator) * 90 - 45
    return trail(images.float(), angle, radius, sigma).to(torch.uint8)


def trail(x: Tensor, angle: Tensor, radius: float, sigma: float) -> Tensor:
    """sum_i w_i x(row + dy_i, column + dx_i) for i = 0 ... 2 radius, with w_i proportional to exp(-i^2 / (2 sigma^2)).

    (dx_i, dy_i) = i (cos, sin)(angle), each rounded to the nearest pixel (halves down); edges repeat. Weights below
    1e-6 are left out: they move no pixel by a hundredth of a level. ImageMagick rounds the sum to 16 bits and then cuts
    it to 8, so the result is in whole levels.
    x: (N, C, H, W) levels, float; angle: (N,) in degrees, one per image.
    """
    count, channels, height, width = x.shape
    step = np.arange(2 * math.ceil(radius) + 1)
    weight = np.exp(-(step**2) / (2 * sigma**2))
    step, weight = step[weight > 1e-6], weight[weight > 1e-6]
    direction = angle.double() * (math.pi / 180)
    row, column = (torch.arange(side, device=x.device) for side in (height, width))
    flat, total = x.flatten(2), torch.zeros_like(x).flatten(2)
    moved = torch.empty_like(total)
    source = torch.empty((count, height, width), dtype=torch.int64, device=x.device)
    index = source.view(count, 1, -1).expand(count, channels, -1)
    for i, w in zip(step.tolist(), (weight / weight.sum()).tolist(), strict=True):
        dy, dx = ((i * part - 0.5).ceil().long()[:, None] for part in (direction.sin(), direction.cos()))
        y, z = (row + dy).clamp_(0, height - 1), (column + dx).clamp_(0, width - 1)
        torch.add((y * width)[:, :, None], z[:, None, :], out=source)
        total.add_(torch.gather(flat, 2, index, out=moved), alpha=w)
    return total.add_(0.5 / 257).floor_().clamp_(0, 255).view_as(x)
