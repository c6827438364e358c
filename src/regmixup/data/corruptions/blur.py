"""Blurs: Gaussian, defocus, zoom, motion and glass. Images are uint8 (N, C, H, W)."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.data.corruptions.parts import SLACK, filter_matrix, gaussian, truncate, uniform
from regmixup.mixing import to_float


def gaussian_blur(images: Tensor, sigma: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Convolve with a Gaussian cut at 4 sigma; edges repeat."""
    return truncate(gaussian(to_float(images), sigma), slack=SLACK)


def defocus_blur(images: Tensor, radius: float, softness: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Convolve with a disk of `radius` pixels whose rim is softened by a Gaussian of `softness` pixels.

    The image is mirrored at its borders (c b|a b c|b a). The product is taken in Fourier space.
    """
    kernel = disk(radius, softness)
    reach = len(kernel) // 2
    x = F.pad(to_float(images), (reach, reach, reach, reach), mode="reflect")
    size = x.shape[-2:]
    spectrum = torch.fft.rfft2(torch.from_numpy(kernel).to(x), s=size)
    blurred = torch.fft.irfft2(torch.fft.rfft2(x).mul_(spectrum), s=size)
    return truncate(blurred[..., 2 * reach :, 2 * reach :], slack=SLACK)


@lru_cache(maxsize=16)
def disk(radius: float, softness: float) -> np.ndarray:
    """Return the kernel: equal weights within `radius` of the centre, then a Gaussian of 3x3 (5x5 above radius 8).

    CIFAR-C softens the disk on a grid of 17x17 pixels, or just as wide as the disk if that is wider, and mirrors the
    grid at its borders; so at radius 8 and above the rim is cut, and the weights do not add up to quite 1.
    """
    reach, rim = (8, 1) if radius <= 8 else (int(radius), 2)
    offset = np.arange(-reach, reach + 1)
    flat = (offset**2 + offset[:, None] ** 2 <= radius**2).astype(np.float64)
    soften = filter_matrix(len(offset), np.exp(-(np.arange(-rim, rim + 1) ** 2) / (2 * softness**2)), "reflect")
    kernel = soften @ (flat / flat.sum()) @ soften.T
    used = np.flatnonzero(kernel.any(axis=0))
    return kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1].copy()


def zoom_blur(images: Tensor, end: float, step: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Average the image and its centre zooms by 1, 1 + step, ... below `end`.

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
    """Return how many of `side` pixels a zoom keeps, and how many they become: at least `side`.

    >>> zoomed_size(32, 1.05)
    (31, 33)
    """
    kept = math.ceil(side / factor)
    return kept, round(kept * factor)


def centre_zoom(x: Tensor, rows: tuple[int, int], columns: tuple[int, int]) -> Tensor:
    """Enlarge the middle of x linearly, then crop its middle. x: (N, C, H, W) float; rows, columns: see `zoomed_size`.

    The enlargement maps the first and the last pixel of the crop to those of the result.
    """
    height, width = x.shape[-2:]
    top, left = (height - rows[0]) // 2, (width - columns[0]) // 2
    x = x[..., top : top + rows[0], left : left + columns[0]]
    if rows[0] != rows[1] or columns[0] != columns[1]:
        x = F.interpolate(x, size=(rows[1], columns[1]), mode="bilinear", align_corners=True)
    top, left = (rows[1] - height) // 2, (columns[1] - width) // 2
    return x[..., top : top + height, left : left + width]


def motion_blur(images: Tensor, radius: float, sigma: float, *, generator: torch.Generator | None) -> Tensor:
    """Draw a trail at an angle from U(-45, 45) degrees for each image, as ImageMagick does; see `trail`."""
    angle = uniform((len(images),), images.device, generator) * 90 - 45
    return trail(images.float(), angle, radius, sigma).to(torch.uint8)


def trail(x: Tensor, angle: Tensor, radius: float, sigma: float) -> Tensor:
    """Return sum_i w_i x(row + dy_i, column + dx_i), i = 0 ... 2 radius, with w_i ~ exp(-i^2 / (2 sigma^2)).

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
    dy = (far * direction.sin() - 0.5).ceil().long()
    dx = (far * direction.cos() - 0.5).ceil().long()
    top, bottom = max(0, -int(dy.min())), max(0, int(dy.max()))
    left, right = max(0, -int(dx.min())), max(0, int(dx.max()))
    padded = F.pad(x, (left, right, top, bottom), mode="replicate")
    # A view of every window: windows[n, a, b] is image n from row a and column b of the padded one. Nothing is copied.
    (count, channels, height, width), (n, c, h, w) = x.shape, padded.stride()
    shape = (count, top + bottom + 1, left + right + 1, channels, height, width)
    windows = padded.as_strided(shape, (n, h, w, c, h, w))
    image, total = torch.arange(count, device=x.device), torch.zeros_like(x)
    for i, share in enumerate((weight / weight.sum()).tolist()):
        total.add_(windows[image, dy[:, i] + top, dx[:, i] + left], alpha=share)
    return total.add_(0.5 / 257).floor_().clamp_(0, 255)


def glass_blur(
    images: Tensor, sigma: float, reach: float, passes: float, *, generator: torch.Generator | None
) -> Tensor:
    """Blur by a Gaussian, scramble `passes` times, and blur again.

    In each scramble a pixel becomes one of those at offsets -reach ... reach - 1 in both directions; see `scramble`.
    """
    count, _, height, width = images.shape
    d = int(reach)
    x = gaussian_blur(images, sigma)
    source = generator.device if generator is not None else images.device
    for _ in range(int(passes)):
        shape = (count, 2, height - 2 * d, width - 2 * d)
        x = scramble(x, torch.randint(-d, d, shape, generator=generator, device=source).to(images.device), d)
    return gaussian_blur(x, sigma)


def scramble(x: Tensor, offset: Tensor, reach: int) -> Tensor:
    """Copy a neighbour onto each pixel, from the last row to the first and from right to left; no loop over pixels.

    x: (N, C, H, W). offset: (N, 2, H - 2 reach, W - 2 reach) rows and columns for the pixels from reach + 1 to
    H - reach (W - reach); the others stay. The neighbour keeps its value: CIFAR-C's code means to swap the two but,
    working on views of one array, copies.

    A copy sees the neighbour's new value if the scan has passed it (it lies below, or to the right in the same row) and
    its old one otherwise. So each pixel points to another, new or old; following the pointers to the end, by repeatedly
    replacing each pointer by the pointer it points to, says which old pixel ends up where.
    """
    height, width = x.shape[-2:]
    area = height * width
    place = torch.arange(area, device=x.device).view(height, width)
    inner = (slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1))
    scanned = torch.zeros((height, width), dtype=torch.bool, device=x.device)
    scanned[inner] = True
    pointer = (place + area).expand(len(x), -1, -1).clone()  # p < area: the new pixel p; p >= area: the old p - area
    here, there = place[inner], place[inner] + offset[:, 0] * width + offset[:, 1]
    passed = (there > here) & scanned.flatten()[there]
    pointer[(slice(None), *inner)] = torch.where(passed, there, there + area)
    pointer = pointer.flatten(1)
    while bool((pointer < area).any()):
        pointer = torch.where(pointer < area, pointer.gather(1, pointer.clamp(max=area - 1)), pointer)
    old = (pointer - area)[:, None].expand(*x.shape[:2], area)
    return x.flatten(2).gather(2, old).view_as(x)
