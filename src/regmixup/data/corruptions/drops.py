"""Spatter: drops of water, or mud, on the lens; and the classical image processing that it needs.

Canny edges, distances to them, equalising and 3x3 filters take and return (N, H, W), for a batch at once, and follow
OpenCV's definitions. Neighbours are slices of a padded copy.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.data.corruptions.parts import gaussian, normal, truncate
from regmixup.data.images import luma
from regmixup.mixing import to_float

_TURQUOISE = (175 / 255, 238 / 255, 238 / 255)
_BROWN = (63 / 255, 42 / 255, 20 / 255)
_SOBEL = ((-1.0, 0.0, 1.0), (-2.0, 0.0, 2.0), (-1.0, 0.0, 1.0))
_SLOPE = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))
_TAN_22 = 13573 / 2**15  # tan(22.5 degrees) as OpenCV rounds it
# Lengths of steps (1, 1) and (1, 2) in OpenCV's 5x5 distance transform: 1.4 and 2.1969 in its units of 2^-16.
_DIAGONAL, _KNIGHT = 91750 / 2**16, 143976 / 2**16


def spatter(images: Tensor, *level: float, generator: torch.Generator | None) -> Tensor:
    """Add drops where N(mean, spread^2), smoothed by a Gaussian of `sigma` pixels, exceeds `threshold`.

    level: mean, spread, sigma, threshold, strength, mud.
    Water (mud = 0) adds `strength` times a pale turquoise where `water` is brightest. Mud (mud = 1) covers: the drops'
    mask, smoothed by a Gaussian of `strength` pixels and set to 0 below 0.8, blends the image with brown.
    images: uint8 (N, C, H, W); on grey images the colours become their luma.
    """
    mean, spread, sigma, threshold, strength, mud = level
    count, channels, height, width = images.shape
    field = normal((count, 1, height, width), images.device, generator) * spread + mean
    field = gaussian(field, sigma)
    x = to_float(images)
    colour = torch.tensor(_BROWN if mud else _TURQUOISE, device=x.device).view(1, 3, 1, 1)
    colour = colour if channels == 3 else luma(colour)
    if not mud:
        field = torch.where(field < threshold, 0.0, field)
        shine = water((field * 255).floor_().clamp_(0, 255).squeeze(1)).unsqueeze(1)
        return truncate(x + (strength * shine) * colour)
    cover = gaussian((field > threshold).float(), strength)
    cover = torch.where(cover < 0.8, 0.0, cover)
    return truncate(x * (1 - cover) + cover * colour)


def water(drops: Tensor) -> Tensor:
    """Light the drops: (N, H, W) levels, 0 outside them -> shine with maximum 1 per image.

    The distance from the drops' Canny edges (thresholds 50 and 150), cut at 20, smoothed, equalised, and turned into a
    slope lit from the lower right by a 3x3 filter, smoothed again, times the drops. Levels are whole numbers as in
    OpenCV's 8-bit images. Where no drop shines the result is 0 (CIFAR-C divides 0 by 0 there).
    """
    distance = chamfer_distance(canny(drops, 50, 150), 20)
    height = equalize(mean3(distance).floor_())
    slope = filter3(height, _SLOPE).clamp_(0, 255)
    shine = drops * mean3(slope).round_()
    return shine / shine.amax(dim=(1, 2), keepdim=True).clamp_min(1e-12)


def canny(x: Tensor, low: float, high: float) -> Tensor:
    """Return Canny's edge map: (N, H, W) levels -> bool.

    Gradients by 3x3 Sobel filters with repeated borders, magnitude |dx| + |dy|. A pixel above `low` that is a local
    maximum along its gradient (to the nearest 45 degrees) is a candidate; candidates above `high`, and candidates
    connected to those through candidates (8 neighbours), are edges.
    """
    dx = filter3(x, _SOBEL, border="replicate")
    dy = filter3(x, tuple(zip(*_SOBEL, strict=True)), border="replicate")
    size = dx.abs() + dy.abs()
    padded = F.pad(size, (1, 1, 1, 1))
    across = (size > _shifted(padded, 0, -1)) & (size >= _shifted(padded, 0, 1))
    down = (size > _shifted(padded, -1, 0)) & (size >= _shifted(padded, 1, 0))
    falling = (size > _shifted(padded, -1, -1)) & (size > _shifted(padded, 1, 1))
    rising = (size > _shifted(padded, -1, 1)) & (size > _shifted(padded, 1, -1))
    flat = dy.abs() < dx.abs() * _TAN_22
    steep = dy.abs() > dx.abs() * (_TAN_22 + 2)
    diagonal = torch.where((dx < 0) != (dy < 0), rising, falling)
    candidate = torch.where(flat, across, torch.where(steep, down, diagonal)) & (size > low)
    edge = candidate & (size > high)
    while True:
        grown = edge
        for _ in range(4):
            p = F.pad(grown, (1, 1, 1, 1))
            p = p[:, :-2] | p[:, 1:-1] | p[:, 2:]
            grown = (p[..., :-2] | p[..., 1:-1] | p[..., 2:]) & candidate
        if torch.equal(grown, edge):
            return edge
        edge = grown


def chamfer_distance(edge: Tensor, limit: int) -> Tensor:
    """Return how far each pixel is from the nearest edge, cut at `limit`: (N, H, W) bool -> float.

    The distance of two pixels is the shortest path in steps to the 8 neighbours (length 1 and 1.4) and knight's moves
    (2.1969). For offsets a >= b >= 0 that is (a - 2b) straight steps and b knight's moves, or, where b > a / 2, (a - b)
    knight's moves and (2b - a) diagonal steps: a polygonal norm, the maximum of four linear functions. It grows with
    |dx|, so of each row only the edge nearest in that row counts.
    """
    across = torch.where(edge, 0.0, float(limit))
    reach = 1
    while reach < limit:  # after each round `across` is right up to 2 reach - 1
        p = F.pad(across, (reach, reach), value=limit)
        across = torch.minimum(across, torch.minimum(p[..., : -2 * reach], p[..., 2 * reach :]) + reach)
        reach *= 2
    distance = across
    for dy in range(1, min(limit, edge.shape[1])):
        if float(distance.max()) <= dy:
            break
        p = F.pad(across, (0, 0, dy, dy), value=limit)
        dx = torch.minimum(p[:, : -2 * dy], p[:, 2 * dy :])
        outer = torch.maximum(dx + dy * (_KNIGHT - 2), dx * (_KNIGHT - 2) + dy)
        straight, diagonal = _KNIGHT - _DIAGONAL, 2 * _DIAGONAL - _KNIGHT
        inner = torch.maximum(dx * straight + dy * diagonal, dx * diagonal + dy * straight)
        distance = torch.minimum(distance, torch.maximum(outer, inner))
    return distance


def equalize(x: Tensor) -> Tensor:
    """Spread the levels of each image so that its histogram is flat: (N, H, W) whole levels -> whole levels.

    Level v becomes 255 (number of pixels <= v, less those at the lowest level) / (all pixels, less those), rounded.
    An image of one level stays.
    """
    levels = x.long().flatten(1)
    histogram = torch.zeros((len(x), 256), device=x.device)
    histogram.scatter_add_(1, levels, torch.ones_like(levels, dtype=torch.float32))
    lowest = histogram.gather(1, levels.amin(dim=1, keepdim=True))
    spare = levels.shape[1] - lowest
    scale = torch.full_like(spare, 255) / spare.clamp_min(1)  # 255 / x would be 255 times a rounded reciprocal
    table = ((histogram.cumsum(dim=1) - lowest) * scale).round_()
    return torch.where(spare[:, :, None] > 0, table.gather(1, levels).view_as(x), x)


def filter3(x: Tensor, kernel: tuple[tuple[float, ...], ...], *, border: str = "reflect") -> Tensor:
    """Sum over the 3x3 neighbours, kernel[1 + y][1 + x] each; by default mirrored at the borders (c b|a b c|b a)."""
    padded, total = F.pad(x, (1, 1, 1, 1), mode=border), torch.zeros_like(x)
    for y, line in enumerate(kernel):
        for z, weight in enumerate(line):
            total.add_(_shifted(padded, y - 1, z - 1), alpha=weight)
    return total


def mean3(x: Tensor) -> Tensor:
    """Average the 3x3 neighbourhood, mirrored at the borders."""
    p = F.pad(x, (1, 1, 1, 1), mode="reflect")
    p = p[:, :-2] + p[:, 1:-1] + p[:, 2:]
    return (p[..., :-2] + p[..., 1:-1] + p[..., 2:]).div_(9)


def _shifted(padded: Tensor, y: int, x: int) -> Tensor:
    """Return the neighbours at (y, x) of every pixel, from a copy padded by 1."""
    return padded[:, 1 + y : padded.shape[1] - 1 + y, 1 + x : padded.shape[2] - 1 + x]
