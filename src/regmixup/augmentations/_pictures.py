"""Pictures for PixMix, drawn by us: plasma, gratings and Perlin noise, coloured by cosines of their height.

Every picture is periodic, so that a bank of a few hundred, shifted by any number of pixels, shows a new one each time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regmixup.mixing import made_once, sample_uniform

COUNT = 512  # pictures of a bank
_TURN = 2 * math.pi


@made_once
def bank(kinds: tuple[str, ...], shape: tuple[int, int, int], device: torch.device) -> Tensor:
    """Return pictures of the given kinds, equally many of each, (512, C, H, W) uint8."""
    generator = torch.Generator().manual_seed(0)
    with torch.device("cpu"):
        channels, height, width = shape
        heights = []
        for place, kind in enumerate(kinds):
            count = COUNT // len(kinds) + (1 if place < COUNT % len(kinds) else 0)
            heights.append(HEIGHTS[kind](count, height, width, generator))
        return _coloured(torch.cat(heights), channels, generator).to(device)


def _coloured(heights: Tensor, channels: int, generator: torch.Generator) -> Tensor:
    """Colour heights (n, H, W): each channel is 1/2 + 1/2 cos 2 pi (f h + phase), f from 1/2 to 3, h from 0 to 1."""
    low, high = heights.amin((1, 2), keepdim=True), heights.amax((1, 2), keepdim=True)
    heights = (heights - low) / (high - low).clamp(min=1e-12)
    rate, phase = sample_uniform((2, len(heights), channels, 1, 1), generator)
    waves = 0.5 + 0.5 * torch.cos(_TURN * ((0.5 + 2.5 * rate) * heights[:, None] + phase))
    return (255 * waves).round().to(torch.uint8)


def _plasma(count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Return sums of all waves with random phases and amplitudes 1 / frequency^p, p from 1.5 to 2.5."""
    down, along = torch.fft.fftfreq(height, 1 / height), torch.fft.rfftfreq(width, 1 / width)
    frequency = torch.hypot(down.double()[:, None], along.double())
    frequency[0, 0] = math.inf
    power = 1.5 + sample_uniform((count, 1, 1), generator)
    phase = _TURN * sample_uniform((count, *frequency.shape), generator)
    return torch.fft.irfft2(torch.polar(frequency**-power, phase), s=(height, width))


def _gratings(count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Return sums of three waves, each with at most a cycle for four pixels; every other picture has two heights."""
    down, along = torch.arange(height).double() / height, torch.arange(width).double() / width
    cycles = 2 * sample_uniform((2, count, 3, 1, 1), generator) - 1
    rows, columns = (height / 4 * cycles[0]).round(), (width / 4 * cycles[1]).round()
    rows[(rows == 0) & (columns == 0)] = 1  # never flat
    phase, strength = sample_uniform((2, count, 3, 1, 1), generator)
    heights = (strength * torch.cos(_TURN * (rows * down[:, None] + columns * along + phase))).sum(dim=1)
    medians = heights[::2].flatten(1).median(dim=1).values
    heights[::2] = (heights[::2] > medians[:, None, None]).double()
    return heights


def _perlin(count: int, height: int, width: int, generator: torch.Generator) -> Tensor:
    """Return Perlin's gradient noise on lattices of 2, 4 and 8 cells, each of half the strength of the one before."""

    def fade(place: Tensor) -> Tensor:
        return place**3 * (place * (6 * place - 15) + 10)

    heights = torch.zeros(count, height, width, dtype=torch.float64)
    for cells in (2, 4, 8):
        angle = _TURN * sample_uniform((count, cells, cells), generator)
        y = torch.arange(height).double() * cells / height
        x = torch.arange(width).double() * cells / width
        corners = []  # the slope at each corner of a pixel's cell times the way from there to the pixel
        for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
            slope = angle[:, (y.long() + down) % cells][:, :, (x.long() + right) % cells]
            corners.append(slope.sin() * (y.frac() - down)[:, None] + slope.cos() * (x.frac() - right))
        upper = torch.lerp(corners[0], corners[1], fade(x.frac()))
        lower = torch.lerp(corners[2], corners[3], fade(x.frac()))
        heights += torch.lerp(upper, lower, fade(y.frac())[:, None]) / cells
    return heights


HEIGHTS = {"plasma": _plasma, "gratings": _gratings, "perlin": _perlin}
