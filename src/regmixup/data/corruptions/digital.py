"""Brightness, contrast, saturation, JPEG, pixelation and elastic transform. Images are uint8 (N, C, H, W)."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from regmixup.data.corruptions.parts import SLACK, box_matrix, gaussian, truncate, uniform
from regmixup.mixing import to_float


def brightness(images: Tensor, shift: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Raise the HSV value, the largest channel, by `shift` and scale the others with it; greys just shift."""
    x = to_float(images)
    value = x.amax(dim=1, keepdim=True)
    raised = (value + shift).clamp(0, 1)
    share = torch.where(value > 0, x / value.clamp_min(1e-12), 1.0)
    return truncate(raised * share, slack=SLACK)


def contrast(images: Tensor, factor: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Shrink each channel towards its mean over the image."""
    x = to_float(images)
    mean = x.mean(dim=(2, 3), keepdim=True)
    return truncate(mean + factor * (x - mean))


def saturate(images: Tensor, scale: float, shift: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Change the HSV saturation s = (max - min) / max to scale s + shift, cut to [0, 1]; hue and value stay.

    A channel v is max (1 - s d) with d = (max - v) / (max - min), and d is a matter of hue alone. Grey pixels have the
    hue of red, as is usual, so a shift reddens them. One-channel images have no colour and do not change.
    """
    if images.shape[1] == 1:
        return images.clone()
    x = to_float(images)
    value = x.amax(dim=1, keepdim=True)
    spread = value - x.amin(dim=1, keepdim=True)
    red_hue = torch.tensor([0.0, 1.0, 1.0], device=x.device).view(1, 3, 1, 1)
    hue = torch.where(spread > 0, (value - x) / spread.clamp_min(1e-12), red_hue)
    saturation = (spread / value.clamp_min(1e-12) * scale + shift).clamp(0, 1)
    return truncate(value * (1 - saturation * hue), slack=SLACK)


def jpeg_compression(images: Tensor, quality: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Save as JPEG at `quality` (1 to 100) and load, by Pillow on the CPU, as CIFAR-C does.

    images: uint8 (N, 3, H, W), or (N, 1, H, W) for greyscale JPEG.
    """

    def compressed(pixels: np.ndarray) -> np.ndarray:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=int(quality))
        with Image.open(file) as image:
            return np.asarray(image).reshape(*pixels.shape[:2], -1)

    arrays = images.permute(0, 2, 3, 1).cpu().numpy()
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow lets other threads run while it works
        decoded = list(pool.map(compressed, arrays.squeeze(3) if images.shape[1] == 1 else arrays))
    return torch.from_numpy(np.stack(decoded)).permute(0, 3, 1, 2).to(images.device)


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
    a, b, c, d = moved_edges.flatten(-2).unbind(-1)
    adjugate = torch.stack((d, -b, -c, a), dim=-1).unflatten(-1, (2, 2))
    inverse = edges @ adjugate / (a * d - b * c)[:, None, None]
    # source = before_0 + inverse (target - after_0), per axis: the column's part with the constant, plus the row's.
    start = before[0] - (inverse @ after[:, 0, :, None]).squeeze(-1)
    row, column = (torch.arange(side, dtype=x.dtype, device=x.device) for side in (height, width))
    source = []
    for axis in (0, 1):
        of_column = inverse[:, axis, 0, None] * column + start[:, axis, None]
        of_row = inverse[:, axis, 1, None] * row
        source.append(of_column[:, None, :] + of_row[:, :, None])
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
