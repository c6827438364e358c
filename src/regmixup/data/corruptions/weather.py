"""Snow, fog and frost. Images are uint8 (N, C, H, W).

CIFAR-C and ImageNet-C make frost from crops of five photographs of frosted glass. We ship no photographs: `textures`
generates five feathered textures from fixed seeds. Each has the mean and the standard deviation per channel that we
measured on one of the photographs, and about the same share of coarse structure. A severity therefore changes pixels
about as much as in CIFAR-C, but the crystals differ: frost is the one corruption here that differs from CIFAR-C by more
than chance.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from regmixup.data.corruptions.blur import centre_zoom, trail, zoomed_size
from regmixup.data.corruptions.parts import normal, truncate, uniform
from regmixup.data.images import luma
from regmixup.mixing import to_float

SIDE = 480  # of a texture, in pixels; it tiles the plane
# Mean and standard deviation of the R, G, B levels, and how much of the variance is coarser than a crop.
_GLASS = (
    ((78, 149, 166), (27, 17, 15), 0.60),
    ((201, 205, 215), (21, 22, 23), 0.35),
    ((201, 205, 215), (21, 22, 23), 0.35),
    ((138, 153, 165), (29, 29, 30), 0.20),
    ((112, 123, 135), (44, 43, 42), 0.35),
)


def snow(images: Tensor, *level: float, generator: torch.Generator | None) -> Tensor:
    """Return b x + (1 - b) max(x, 1.5 grey(x) + 0.5) + flakes + flakes turned by 180 degrees, with b = blend.

    level: mean, spread, zoom, threshold, radius, sigma, blend.
    The flakes are N(mean, spread^2) per pixel, enlarged by `zoom`, set to 0 below `threshold`, cut to 8 bits, and drawn
    out by a motion blur (`radius`, `sigma`) at an angle from U(-135, -45) degrees.
    """
    mean, spread, zoom, threshold, radius, sigma, blend = level
    count, _, height, width = images.shape
    flakes = normal((count, 1, height, width), images.device, generator).mul_(spread).add_(mean)
    angle = uniform((count,), images.device, generator) * 90 - 135
    flakes = centre_zoom(flakes, zoomed_size(height, zoom), zoomed_size(width, zoom))
    flakes = truncate(torch.where(flakes < threshold, 0.0, flakes)).float()
    flakes = trail(flakes, angle, radius, sigma) / 255
    x = to_float(images)
    pale = torch.maximum(x, luma(x) * 1.5 + 0.5)
    return truncate(blend * x + (1 - blend) * pale + (flakes + flakes.flip(-1, -2)))


def fog(images: Tensor, amount: float, decay: float, *, generator: torch.Generator | None) -> Tensor:
    """Return (x + amount * cloud) * m / (m + amount), where m is the image's largest value and the cloud is `plasma`.

    The cloud fills the smallest power of two that holds the image; its top left corner is used. One cloud per image,
    the same in all channels.
    """
    count, _, height, width = images.shape
    side = 1 << (max(height, width) - 1).bit_length()
    cloud = plasma(uniform((count, side, side), images.device, generator), decay)[:, None, :height, :width]
    x = to_float(images)
    brightest = x.amax(dim=(1, 2, 3), keepdim=True)
    return truncate((x + amount * cloud) * (brightest / (brightest + amount)))


def plasma(u: Tensor, decay: float) -> Tensor:
    """Return the diamond-square fractal on a torus, scaled to [0, 1]. u: (N, S, S) in [0, 1), S a power of two.

    The grid is refined from step S down to 1. A new point is the mean of its four neighbours, first diagonal and then
    straight, plus w^2 (2u - 1), where u belongs to the point; w starts at 100 and falls by `decay` after each step.
    """
    noise = u * 2 - 1
    cloud = torch.zeros_like(noise)
    step, wibble = cloud.shape[-1], 100.0
    while step >= 2:
        half = step // 2
        on, off = slice(0, None, step), slice(half, None, step)
        corner = cloud[:, on, on]
        pair = corner + corner.roll(-1, dims=1)
        cloud[:, off, off] = (pair + pair.roll(-1, dims=2)) / 4 + wibble**2 * noise[:, off, off]
        centre = cloud[:, off, off]
        beside = centre + centre.roll(1, dims=1) + corner + corner.roll(-1, dims=2)
        cloud[:, on, off] = beside / 4 + wibble**2 * noise[:, on, off]
        above = centre + centre.roll(1, dims=2) + corner + corner.roll(-1, dims=1)
        cloud[:, off, on] = above / 4 + wibble**2 * noise[:, off, on]
        step, wibble = half, wibble / decay
    cloud -= cloud.amin(dim=(1, 2), keepdim=True)
    return cloud / cloud.amax(dim=(1, 2), keepdim=True).clamp_min(1e-12)


def frost(images: Tensor, keep: float, ice: float, stride: float, *, generator: torch.Generator | None) -> Tensor:
    """Return keep * x + ice * texture: a random crop of a random texture, of which every `stride`-th pixel is used.

    Crops wrap around. images: uint8 (N, C, H, W); grey images get the textures' luma.
    """
    count, channels, height, width = images.shape
    step = int(stride)
    table = textures()[:, :, step // 2 :: step, step // 2 :: step].to(images.device).float()
    table = (table if channels == 3 else luma(table)).contiguous()
    side = table.shape[-1]
    u = uniform((count, 3), images.device, generator)
    texture = (u[:, 0] * len(table)).long()
    top, left = (u[:, 1] * side).long(), (u[:, 2] * side).long()
    row = (top[:, None] + torch.arange(height, device=images.device)) % side
    column = (left[:, None] + torch.arange(width, device=images.device)) % side
    plane = (texture[:, None] * channels + torch.arange(channels, device=images.device))[:, :, None, None]
    place = (plane * side + row[:, None, :, None]) * side + column[:, None, None, :]
    return (images.float() * keep).add_(table.take(place), alpha=ice).clamp_(0, 255).to(torch.uint8)


@lru_cache(maxsize=1)
def textures() -> Tensor:
    """Return the five textures: (5, 3, SIDE, SIDE) uint8."""
    made = []
    for seed, (mean, spread, coarse) in enumerate(_GLASS):
        random = np.random.RandomState(seed)
        ice = _unit(1.2 * _crystals(random, 60) + 0.8 * _crystals(random, 500) + _cloud(random, 40, 2.0))
        field = np.sqrt(coarse) * _cloud(random, SIDE, 4.0) + np.sqrt(1 - coarse) * ice
        made.append(np.array(mean)[:, None, None] + np.array(spread)[:, None, None] * field)
    return torch.from_numpy(np.stack(made).round().clip(0, 255).astype(np.uint8))


def _crystals(random: np.random.RandomState, count: int) -> np.ndarray:
    """Return `count` feathers that tile the torus, each with its own axis and with barbs at 60 degrees: (SIDE, SIDE).

    A pixel belongs to the nearest of `count` random points. With u and v its offset from that point along and across
    the feather's axis, its brightness is a random function of u - |v| / tan(60), constant along the barbs.
    """
    from scipy.spatial import cKDTree

    points = random.rand(count, 2) * SIDE
    axis = random.rand(count) * 2 * np.pi
    barb = random.randn(count, 2 * SIDE)
    barb = barb + np.roll(barb, 1, axis=1)  # about two pixels wide
    pixel = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij"), axis=-1).reshape(-1, 2)
    _, nearest = cKDTree(points, boxsize=SIDE).query(pixel)
    dy, dx = ((pixel - points[nearest] + SIDE / 2) % SIDE - SIDE / 2).T
    sine, cosine = np.sin(axis[nearest]), np.cos(axis[nearest])
    along, across = dy * sine + dx * cosine, np.abs(dy * cosine - dx * sine)
    return _unit(barb[nearest, (along - across * 0.577 + SIDE).astype(np.int64)].reshape(SIDE, SIDE))


def _cloud(random: np.random.RandomState, scale: float, slope: float) -> np.ndarray:
    """Return noise on the torus, spectrum ~ (f^2 + scale^-2)^(-slope): features of `scale` pixels and up."""
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE))
    spectrum = np.fft.rfft2(random.randn(SIDE, SIDE)) * (frequency**2 + (1 / scale) ** 2) ** (-slope / 2)
    spectrum[0, 0] = 0
    return _unit(np.fft.irfft2(spectrum, s=(SIDE, SIDE)))


def _unit(x: np.ndarray) -> np.ndarray:
    """Shift and scale to mean 0 and variance 1."""
    return (x - x.mean()) / x.std()
