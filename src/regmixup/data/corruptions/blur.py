"""Blurs that need no randomness: Gaussian, out of focus, zoom. images: uint8 (N, C, H, W)."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.data.corruptions.linear import filter_matrix, gaussian
from regmixup.data.corruptions.pixels import SLACK, truncate
from regmixup.mixing import to_float


def gaussian_blur(images: Tensor, sigma: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Convolution with a Gaussian cut at 4 sigma, edges repeated."""
    return truncate(gaussian(to_float(images), sigma), slack=SLACK)


def defocus_blur(images: Tensor, radius: float, softness: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Convolution with a disk of `radius` pixels whose rim is softened by a Gaussian of `softness` pixels.

    The image is mirrored at its borders (c b|a b c|b a). The product is taken in Fourier space.
    """
    kernel = disk(radius, softness)
    reach = len(kernel) // 2
    height, width = images.shape[-2:]
    if reach >= min(height, width):
        raise ValueError(f"defocus_blur reaches {reach} pixels, too far for images of {height}x{width}")
    x = F.pad(to_float(images), (reach, reach, reach, reach), mode="reflect")
    size = x.shape[-2:]
    spectrum = torch.fft.rfft2(torch.from_numpy(kernel).to(x), s=size)
    blurred = torch.fft.irfft2(torch.fft.rfft2(x).mul_(spectrum), s=size)
    return truncate(blurred[..., 2 * reach :, 2 * reach :], slack=SLACK)


@lru_cache(maxsize=16)
def disk(radius: float, softness: float) -> np.ndarray:
    """The kernel: pixels within `radius` of the centre, equal weights, then a Gaussian of 3x3 (5x5 above radius 8).

    CIFAR-C softens the disk on a grid of 17x17 pixels, or just as wide as the disk if that is wider, and mirrors the
    grid at its borders; so at radius 8 and above the rim is cut, and the weights do not add up to quite 1.
    """
    reach, rim = (8, 1) if radius <= 8 else (int(radius), 2)
    offset = np.arange(-reach, reach + 1)
    flat = (offset**2 + offset[:, None] ** 2 <= radius**2).astype(np.float64)
    soften = filter_matrix(len(offset), np.exp(-(np.arange(-rim, rim + 1) ** 2) / (2 * softness**2)), "mirror")
    kernel = soften @ (flat / flat.sum()) @ soften.T
    used = np.flatnonzero(kernel.any(axis=0))
    return kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1].copy()


def zoom_blur(images: Tensor, end: float, step: float, *, generator: torch.Generator | None = None) -> Tensor:
    """The mean of the image and of its centre zooms by 1, 1 + step, ... below `end`.

    The factors are numpy's `arange(1, end, step)`, as in CIFAR-C; rounding lets some reach `end` itself (1.06, 1.11).
    Many factors of a small image give the same zoom, which is computed once.
    """
    factors = np.arange(1, end, step).tolist()
    counts = Counter(tuple(zoomed_size(side, factor) for side in images.shape[-2:]) for factor in factors)
    # All images as the channels of one, channels last: the interpolation then runs along contiguous memory.
    x = to_float(images).flatten(0, 1).unsqueeze(0).contiguous(memory_format=torch.channels_last)
    total = x.clone()
    for (rows, columns), count in counts.items():
        total.add_(centre_zoom(x, rows, columns), alpha=count)
    return truncate(total.div_(len(factors) + 1), slack=SLACK).view(images.shape)


def zoomed_size(side: int, factor: float) -> tuple[int, int]:
    """How many of `side` pixels a zoom keeps, and how many they become: at least `side`.

    >>> zoomed_size(32, 1.05)
    (31, 33)
    """
    kept = math.ceil(side / factor)
    return kept, round(kept * factor)


def centre_zoom(x: Tensor, rows: tuple[int, int], columns: tuple[int, int]) -> Tensor:
    """The middle of x enlarged linearly, then its middle. x: (N, C, H, W) float; rows, columns: see `zoomed_size`.

    The enlargement maps the first and the last pixel of the crop to those of the result.
    """
    height, width = x.shape[-2:]
    top, left = (height - rows[0]) // 2, (width - columns[0]) // 2
    x = x[..., top : top + rows[0], left : left + columns[0]]
    if rows[0] != rows[1] or columns[0] != columns[1]:
        x = F.interpolate(x, size=(rows[1], columns[1]), mode="bilinear", align_corners=True)
    top, left = (rows[1] - height) // 2, (columns[1] - width) // 2
    return x[..., top : top + height, left : left + width]
