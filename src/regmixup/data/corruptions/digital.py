"""Elastic transform, pixelation and JPEG. Images are uint8 (N, C, H, W).

JPEG runs on the images' own device, without the entropy coding, which is lossless. torchvision's codec takes the images
one by one on the CPU, and on a GPU needs nvJPEG, whose pixels differ from the CPU's. Everything that JPEG loses, it
loses in steps that any device can do for a batch: colour transform, 2x2 chroma means, 8x8 cosine transform, rounding to
multiples of the quantisation table, and the inverse of each. They use the integer roundings of libjpeg-turbo, PIL's
codec; results differ from PIL's only where its fixed-point cosine transform rounds the other way (about 5 % of the
pixels, 0.1 levels on average).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.data.corruptions.parts import SLACK, apply, box_matrix, gaussian, truncate, uniform
from regmixup.mixing import to_float

_LUMA = (
    *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
)  # ITU-T T.81, table K.1
_CHROMA = (
    *(17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99),
    *(24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99),
    *(99,) * 32,
)  # ITU-T T.81, table K.2


def jpeg_compression(images: Tensor, quality: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Apply baseline JPEG at `quality` (1 to 100), chroma at half resolution, as PIL saves and loads it by default.

    images: uint8 (N, 3, H, W), or (N, 1, H, W) for greyscale JPEG.
    """
    height, width = images.shape[-2:]
    x = images.float()
    if images.shape[1] == 1:
        return _lossy(_pad_to(x, 8, 8), _LUMA, quality)[..., :height, :width].to(torch.uint8)
    # A unit of 16x16 pixels holds 4 luma and 2 chroma blocks. The right edge is repeated before the chroma means, the
    # bottom edge after them.
    luma, *chroma = _to_ycc(_pad_to(x, 2, 16))
    decoded = _lossy(_pad_to(luma, 16, 16), _LUMA, quality)[..., :height, :width]
    half = _pad_to(_halve(torch.cat(chroma, dim=1)), 8, 8)
    rows, columns = -(-height // 2), -(-width // 2)
    half = _lossy(half, _CHROMA, quality)[..., :rows, :columns]
    return _to_rgb(decoded, *_double(half)[..., :height, :width].split(1, dim=1))


def _pad_to(x: Tensor, rows: int, columns: int) -> Tensor:
    """Repeat the last row and column until the sides are multiples of `rows` and `columns`."""
    height, width = x.shape[-2:]
    return F.pad(x, (0, -width % columns, 0, -height % rows), mode="replicate")


def _to_ycc(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Convert (N, 3, H, W) RGB levels to Y, Cb, Cr, each (N, 1, H, W), rounded as libjpeg's 16-bit fixed point does."""
    red, green, blue = x.split(1, dim=1)
    y = (red * 0.299).add_(green, alpha=0.587).add_(blue, alpha=0.114)
    cb = ((blue - y) * (0.5 / 0.886)).add_(128.5 - 2.0**-16).floor_()
    cr = ((red - y) * (0.5 / 0.701)).add_(128.5 - 2.0**-16).floor_()
    return y.add_(0.5).floor_(), cb, cr


def _to_rgb(y: Tensor, cb: Tensor, cr: Tensor) -> Tensor:
    """Convert Y, Cb, Cr levels to uint8 RGB (N, 3, H, W); each colour difference is rounded before it is added."""
    cb, cr = cb - 128, cr - 128
    red = (cr * 1.402).add_(0.5).floor_().add_(y)
    green = (cb * -0.344136286).add_(cr, alpha=-0.714136286).add_(0.5).floor_().add_(y)
    blue = (cb * 1.772).add_(0.5).floor_().add_(y)
    return torch.cat((red, green, blue), dim=1).clamp_(0, 255).to(torch.uint8)


def _halve(x: Tensor) -> Tensor:
    """Average 2x2 pixels; a half is rounded down in the even columns of the result and up in the odd ones."""
    total = x[..., ::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, ::2] + x[..., 1::2, 1::2]
    bias = 1 + torch.arange(total.shape[-1], device=x.device) % 2
    return total.add_(bias).mul_(0.25).floor_()


def _double(x: Tensor) -> Tensor:
    """Double the size ("fancy" upsampling): 3/4 of the nearest pixel plus 1/4 of the next, along both axes."""
    rows, columns = (_doubling(side) for side in x.shape[-2:])
    bias = 8 - torch.arange(2 * x.shape[-1], device=x.device) % 2
    return apply(x, rows, columns).add_(bias).mul_(1 / 16).floor_()


@lru_cache(maxsize=16)
def _doubling(size: int) -> np.ndarray:
    """Return (2 size, size): 3 for the nearest pixel and 1 for the next, which at the ends is the nearest again."""
    row = np.arange(2 * size)
    matrix = np.zeros((2 * size, size))
    matrix[row, row // 2] = 3
    np.add.at(matrix, (row, (row // 2 + np.where(row % 2, 1, -1)).clip(0, size - 1)), 1)
    return matrix


def _lossy(x: Tensor, table: tuple[int, ...], quality: float) -> Tensor:
    """Encode and decode each 8x8 block of (N, C, H, W) levels, sides multiples of 8, at `quality`."""
    count, channels, height, width = x.shape
    there, steps, back = (torch.from_numpy(m).to(x.device) for m in _transforms(table, quality))
    blocks = x.view(count, channels, height // 8, 8, width // 8, 8).transpose(3, 4).reshape(-1, 64)
    eighths = ((blocks - 128) @ there).add_(0.5).floor_()
    coefficients = (eighths.sign() * 0.5).add_(eighths / steps).trunc_()
    levels = (coefficients @ back).add_(128.5 + 2.0**-12).floor_().clamp_(0, 255)
    return levels.view(count, channels, height // 8, width // 8, 8, 8).transpose(3, 4).reshape(x.shape)


@lru_cache(maxsize=32)
def _transforms(table: tuple[int, ...], quality: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return block -> eighths of coefficients (64, 64), the steps in eighths (64,), and coefficients -> block.

    The steps are the standard's, scaled by 50 / q below quality q = 50 and by 2 - q / 50 above.
    """
    percent = int(5000 / quality) if quality < 50 else int(200 - 2 * quality)
    steps = ((np.array(table) * percent + 50) // 100).clip(1, 255)
    frequency, place = np.arange(8)[:, None], np.arange(8)
    cosine = np.cos((2 * place + 1) * frequency * np.pi / 16) / 2
    cosine[0] /= np.sqrt(2)
    both = np.kron(cosine, cosine)  # orthogonal: its transpose is its inverse
    there, back = 8 * both.T, both * steps[:, None]
    return there.astype(np.float32), (8 * steps).astype(np.float32), back.astype(np.float32)


def pixelate(images: Tensor, share: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Shrink the sides to int(share * side) by means over boxes, and stretch them back, as PIL's BOX does both.

    PIL works on one axis at a time, columns first, and rounds to whole levels after each. Stretching only repeats
    pixels, so it can be done before the other axis is shrunk. images: uint8 (N, C, H, W).
    """
    rows, columns = (torch.from_numpy(_there_and_back(side, share)).to(images.device) for side in images.shape[-2:])
    x = (images.float() @ columns.T).add_(0.5).floor_()
    return torch.einsum("ij,ncjk->ncik", rows, x).add_(0.5).to(torch.uint8)


@lru_cache(maxsize=64)
def _there_and_back(side: int, share: float) -> np.ndarray:
    small = max(1, int(side * share))
    return (box_matrix(small, side) @ box_matrix(side, small)).astype(np.float32)


def elastic_transform(
    images: Tensor, strength: float, sigma: float, jitter: float, *, generator: torch.Generator | None
) -> Tensor:
    """Apply a random affine map, then a random displacement field, both by bilinear interpolation.

    The affine map moves three points of the image by U(-jitter, jitter) pixels each way.

    The field is U(-1, 1) per pixel and axis, smoothed by a Gaussian of `sigma` pixels cut at 3 sigma, times `strength`.
    images: uint8 (N, C, H, W). CIFAR-C's affine map (OpenCV's) rounds coordinates to 1/32 pixel; this one does not.
    """
    count, _, height, width = images.shape
    moved = (uniform((count, 3, 2), images.device, generator) * 2 - 1) * jitter
    field = uniform((count, 2, height, width), images.device, generator) * 2 - 1
    x = affine(to_float(images), moved)
    if strength > 0:
        x = displace(x, gaussian(field, sigma, cut=3.0, border="symmetric") * strength)
    return truncate(x, slack=SLACK)


def affine(x: Tensor, moved: Tensor) -> Tensor:
    """Apply the affine map that moves three fixed points by `moved`; mirrored at its borders (c b|a b c|b a).

    x: (N, C, H, W) float; moved: (N, 3, 2) in pixels, as (right, down). The points are (m + s, m + s), (m + s, m - s)
    and (m - s, m - s), with m the middle and s a third of the shorter side, in whole pixels.
    """
    height, width = x.shape[-2:]
    middle = torch.tensor([width // 2, height // 2], dtype=x.dtype, device=x.device)
    corner = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]], dtype=x.dtype, device=x.device)
    before = middle + corner * (min(height, width) // 3)
    after = before + moved
    # The map takes the edges of the triangle to those of the moved one: L D = E, so its inverse is D E^-1.
    edges, moved_edges = (before[1:] - before[:1]).mT, (after[:, 1:] - after[:, :1]).mT
    (a, b), (c, d) = (row.unbind(-1) for row in moved_edges.unbind(-2))
    adjugate = torch.stack((torch.stack((d, -b), dim=-1), torch.stack((-c, a), dim=-1)), dim=-2)
    inverse = edges @ adjugate / (a * d - b * c)[:, None, None]
    # source = before_0 + inverse (target - after_0), per axis: the column's part with the constant, plus the row's.
    start = before[0] - (inverse @ after[:, 0, :, None]).squeeze(-1)
    row, column = (torch.arange(side, dtype=x.dtype, device=x.device) for side in (height, width))
    source = [
        (inverse[:, k, 0, None] * column + start[:, k, None])[:, None, :] + (inverse[:, k, 1, None] * row)[:, :, None]
        for k in (0, 1)
    ]
    return _sample(x, *source, mirrored=True)


def displace(x: Tensor, field: Tensor) -> Tensor:
    """Return x(row + dy, column + dx). field: (N, 2, H, W), dx and dy in pixels. Borders repeat as b a|a b c|c b."""
    row, column = (torch.arange(side, dtype=x.dtype, device=x.device) for side in x.shape[-2:])
    return _sample(x, field[:, 0] + column, field[:, 1] + row[:, None], mirrored=False)


def _sample(x: Tensor, column: Tensor, row: Tensor, *, mirrored: bool) -> Tensor:
    """Sample x bilinearly: (N, C, H, W) at (N, H, W) columns and rows, in pixels.

    `grid_sample` calls the outer pixels' centres (mirrored border) or their outer edges (repeated border) -1 and 1.
    """
    grid = x.new_empty((*column.shape, 2))
    for k, (place, side) in enumerate(((column, x.shape[-1]), (row, x.shape[-2]))):
        scale, shift = (2 / max(side - 1, 1), -1) if mirrored else (2 / side, 1 / side - 1)
        torch.add(place * scale, shift, out=grid[..., k])
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=mirrored)
