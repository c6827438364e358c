"""Motion blur as ImageMagick does it: a trail to one side of each pixel, fading like half a Gaussian."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

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
    step = np.arange(2 * math.ceil(radius) + 1)
    weight = np.exp(-(step**2) / (2 * sigma**2))
    step, weight = step[weight > 1e-6], weight[weight > 1e-6]
    direction = (angle.double() * (math.pi / 180)).unsqueeze(1)
    far = torch.from_numpy(step).to(x.device)
    dy, dx = ((far * part - 0.5).ceil().long() for part in (direction.sin(), direction.cos()))
    (top, bottom), (left, right) = ((max(0, -int(d.min())), max(0, int(d.max()))) for d in (dy, dx))
    padded = F.pad(x, (left, right, top, bottom), mode="replicate")
    # A view of every window: windows[n, a, b] is image n from row a and column b of the padded one. Nothing is copied.
    (count, channels, height, width), (n, c, h, w) = x.shape, padded.stride()
    shape = (count, top + bottom + 1, left + right + 1, channels, height, width)
    windows = padded.as_strided(shape, (n, h, w, c, h, w))
    image, total = torch.arange(count, device=x.device), torch.zeros_like(x)
    for i, share in enumerate((weight / weight.sum()).tolist()):
        total.add_(windows[image, dy[:, i] + top, dx[:, i] + left], alpha=share)
    return total.add_(0.5 / 257).floor_().clamp_(0, 255)
