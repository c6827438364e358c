"""Glass blur: pixels scrambled among their neighbours, as seen through frosted glass."""

from __future__ import annotations

import torch
from torch import Tensor

from regmixup.data.corruptions.linear import gaussian
from regmixup.data.corruptions.pixels import SLACK, truncate
from regmixup.mixing import to_float


def glass_blur(
    images: Tensor, sigma: float, reach: float, passes: float, *, generator: torch.Generator | None
) -> Tensor:
    """A Gaussian blur, `passes` scrambles, and the blur again. images: uint8 (N, C, H, W).

    In each scramble a pixel becomes one of those at offsets -reach ... reach - 1 in both directions; see `scramble`.
    """
    count, _, height, width = images.shape
    d = int(reach)
    if min(height, width) <= 2 * d:
        raise ValueError(f"glass_blur moves pixels by {d}, too far for images of {height}x{width}")
    x = truncate(gaussian(to_float(images), sigma), slack=SLACK)
    source = generator.device if generator is not None else images.device
    for _ in range(int(passes)):
        shape = (count, 2, height - 2 * d, width - 2 * d)
        x = scramble(x, torch.randint(-d, d, shape, generator=generator, device=source).to(images.device), d)
    return truncate(gaussian(to_float(x), sigma), slack=SLACK)


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
