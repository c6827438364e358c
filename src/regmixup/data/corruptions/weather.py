"""Snow and fog. images: uint8 (N, C, H, W)."""

from __future__ import annotations

import torch
from torch import Tensor

from regmixup.data.corruptions.blur import centre_zoom, zoomed_size
from regmixup.data.corruptions.motion import trail
from regmixup.data.corruptions.pixels import luma, normal, truncate, uniform
from regmixup.mixing import to_float


def snow(
    images: Tensor,
    mean: float,
    spread: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    blend: float,
    *,
    generator: torch.Generator | None,
) -> Tensor:
    """b x + (1 - b) max(x, 1.5 grey(x) + 0.5) + flakes + flakes turned by 180 degrees, with b = blend.

    The flakes are N(mean, spread^2) per pixel, enlarged by `zoom`, set to 0 below `threshold`, cut to 8 bits, and drawn
    out by a motion blur (`radius`, `sigma`) at an angle from U(-135, -45) degrees.
    """
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
    """(x + amount * cloud) * m / (m + amount), where m is the image's largest value and the cloud is `plasma`.

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
    """The diamond-square fractal on a torus, scaled to [0, 1]. u: (N, S, S) in [0, 1), S a power of two.

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
