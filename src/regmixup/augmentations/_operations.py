"""The operations of AugMix and PixMix on whole batches, each image with its own operation and level, as in PIL.

`apply_step` maps uint8 images to uint8 images. An operation either changes tones (a table of 256 entries per channel)
or moves pixels (an affine map), so one look-up and one warp serve all of them: an image whose tones change is moved by
the identity, and the other way round. No shape depends on a value, and none is read back.

Level L lies in [0, 10]; its sign turns the direction of what has one:
    autocontrast    every channel stretched to 0..255
    equalize        every channel's histogram flattened
    posterize       the upper 4 - int(.4 L) bits
    solarize        tones from 256 - int(25.6 L) on inverted
    rotate          by int(3 L) degrees counter-clockwise around the centre
    shear_x/y       by .03 L
    translate_x/y   by int(L side / 30) pixels to the left or upwards
Pixels are moved with bilinear interpolation, rounded down; what comes from outside the image is black.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from regmixup.config import Bounds, check_number
from regmixup.mixing import sample_uniform

NAMES = (
    "identity", "autocontrast", "equalize", "posterize", "rotate", "solarize", "shear_x", "shear_y", "translate_x",
    "translate_y",
)  # fmt: skip

LOWEST_LEVEL = 0.1
Severity = Annotated[float, Bounds(check_number, least=LOWEST_LEVEL, most=10)]
_TONES = 256


@dataclass(frozen=True)
class Step:
    """One operation for each of N images. operation: (N, 1, 1) int64, indices into `NAMES`; level, sign: (N, 1, 1)."""

    operation: Tensor
    level: Tensor
    sign: Tensor

    def where(self, name: str, changed: Tensor, other: Tensor | float = 0.0) -> Tensor:
        """Return `changed` for the images whose operation has this name, else `other`; images come first."""
        return torch.where(self.operation == NAMES.index(name), changed, other)

    def whole(self, factor: float) -> Tensor:
        """Return int(factor L)."""
        return (factor * self.level).trunc()


def draw_steps(shape: tuple[int, ...], severity: float, generator: torch.Generator | None) -> tuple[Tensor, ...]:
    """Draw operations, never the identity, levels from 0.1 to the severity, and signs: each of the given shape."""
    operation = 1 + ((len(NAMES) - 1) * sample_uniform(shape, generator)).long()
    level = LOWEST_LEVEL + (severity - LOWEST_LEVEL) * sample_uniform(shape, generator)
    return operation, level, 1 - 2 * (sample_uniform(shape, generator) < 0.5).double()


def apply_step(pixels: Tensor, operation: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Apply one operation to each image. pixels: (N, C, H, W) uint8. The others: N numbers in any shape, as in `Step`.

    >>> pixels = torch.tensor([[[[0, 127, 128, 200]]]], dtype=torch.uint8)
    >>> apply_step(pixels, torch.tensor(NAMES.index("solarize")), torch.tensor(5.0), torch.tensor(1.0)).tolist()
    [[[[0, 127, 127, 55]]]]
    """
    step = Step(operation.reshape(-1, 1, 1), level.reshape(-1, 1, 1), sign.reshape(-1, 1, 1))
    return _warp(_map_tones(pixels, step), step)


# ------------------------------------------------------------------------------------------------------- tones


def _map_tones(pixels: Tensor, step: Step) -> Tensor:
    images, channels = pixels.shape[:2]
    index = pixels.reshape(images, channels, -1).long()
    counts = _histogram(index)
    tone = torch.arange(_TONES, dtype=torch.int32, device=pixels.device).expand_as(counts)
    highest = torch.where(counts > 0, tone, 0).amax(2, keepdim=True)
    table = step.where("autocontrast", _autocontrast(counts, tone, highest, step.level.dtype), tone)
    table = step.where("equalize", _equalize(counts, tone, highest), table)
    dropped = (4 + step.whole(0.4)).int()
    table = step.where("posterize", tone >> dropped << dropped, table)
    threshold = (_TONES - step.whole(25.6)).int()
    table = step.where("solarize", torch.where(tone < threshold, tone, _TONES - 1 - tone), table)
    return table.to(torch.uint8).gather(2, index).reshape(pixels.shape)


def _histogram(index: Tensor) -> Tensor:
    """Count each tone in each channel: (N, C, 256) int32."""
    images, channels, _ = index.shape
    first = _TONES * torch.arange(images * channels, device=index.device).reshape(images, channels, 1)
    places = (index + first).flatten()
    counts = torch.zeros(images * channels * _TONES, dtype=torch.int32, device=index.device)
    return counts.scatter_add(0, places, torch.ones_like(places, dtype=torch.int32)).reshape(images, channels, _TONES)


def _autocontrast(counts: Tensor, tone: Tensor, highest: Tensor, dtype: torch.dtype) -> Tensor:
    low = torch.where(counts > 0, tone, _TONES - 1).amin(2, keepdim=True)
    span = (highest - low).clamp(min=1).to(dtype)
    # PIL's roundings: a true division (torch makes 255 / span a product with the reciprocal), then two products and a
    # difference. The absolute values change nothing but keep a GPU compiler from fusing a product with the difference.
    scale = torch.full_like(span, _TONES - 1) / span
    stretched = ((tone * scale).abs() - (low * scale).abs()).clamp(0, _TONES - 1).int()
    return torch.where(highest > low, stretched, tone)


def _equalize(counts: Tensor, tone: Tensor, highest: Tensor) -> Tensor:
    below = counts.cumsum(2, dtype=torch.int32) - counts
    # All pixels but those of the brightest tone, shared out among 255 steps.
    width = below.gather(2, highest.long()) // (_TONES - 1)
    flat = (width // 2 + below) // width.clamp(min=1)
    return torch.where(width > 0, flat.clamp(max=_TONES - 1), tone)


# --------------------------------------------------------------------------------------------------- positions


def _warp(pixels: Tensor, step: Step) -> Tensor:
    """Look up every pixel's centre (column + 1/2, row + 1/2) where the image's affine map sends it."""
    height, width = pixels.shape[2:]
    column = 0.5 + torch.arange(width, dtype=step.level.dtype, device=pixels.device)
    row = 0.5 + torch.arange(height, dtype=step.level.dtype, device=pixels.device).reshape(-1, 1)
    angle = step.where("rotate", torch.deg2rad(-step.sign * step.whole(3)))
    cos, sin = angle.cos(), angle.sin()
    shear = 0.03 * step.sign * step.level
    left = step.where("translate_x", step.sign * step.whole(width / 30))
    up = step.where("translate_y", step.sign * step.whole(height / 30))
    centre_x, centre_y = width / 2, height / 2
    x0 = centre_x - (cos * centre_x + sin * centre_y) + left
    y0 = centre_y - (cos * centre_y - sin * centre_x) + up
    x = cos * column + (sin + step.where("shear_x", shear)) * row + x0
    y = (step.where("shear_y", shear) - sin) * column + cos * row + y0
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return torch.where(inside.unsqueeze(1), _bilinear(pixels, x - 0.5, y - 0.5), 0)


def _bilinear(pixels: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Interpolate between the four nearest pixels, rounded down; border pixels repeat beyond the border.

    x, y: (N, H, W), where to look for each pixel; 0 is the first pixel's centre.
    """
    images, channels, height, width = pixels.shape
    source = pixels.reshape(images, channels, -1).to(x.dtype)
    left, top = x.floor(), y.floor()
    along, down = (x - left).unsqueeze(1), (y - top).unsqueeze(1)
    columns = [(left.long() + i).clamp(0, width - 1) for i in (0, 1)]
    rows = [width * (top.long() + i).clamp(0, height - 1) for i in (0, 1)]

    def corner(row: Tensor, column: Tensor) -> Tensor:
        place = (row + column).reshape(images, 1, -1).expand(-1, channels, -1)
        return source.gather(2, place).reshape(pixels.shape)

    def between(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
        return first + (second - first) * share

    upper = between(corner(rows[0], columns[0]), corner(rows[0], columns[1]), along)
    lower = between(corner(rows[1], columns[0]), corner(rows[1], columns[1]), along)
    return between(upper, lower, down).to(torch.uint8)
