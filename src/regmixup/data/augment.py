"""Random crop and flip of a whole batch at once, given the random numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class AugmentDraw:
    """Offsets of each image's crop inside the padded image, (N, 2) int64, and whether it is flipped, (N,) bool."""

    offset: Tensor
    flip: Tensor

    def __getitem__(self, index: Tensor | slice) -> AugmentDraw:
        return AugmentDraw(self.offset[index], self.flip[index])

    def to(self, device: torch.device) -> AugmentDraw:
        return AugmentDraw(self.offset.to(device), self.flip.to(device))


def draw_augmentation(count: int, *, padding: int, flip: bool, generator: torch.Generator) -> AugmentDraw:
    """The randomness for `count` images: uniform crops of the image padded by `padding`, and fair coins."""
    offset = torch.randint(2 * padding + 1, (count, 2), generator=generator)
    coin = torch.rand(count, generator=generator) < 0.5
    return AugmentDraw(offset, coin & flip)


def crop_and_flip(images: Tensor, draw: AugmentDraw, padding: int) -> Tensor:
    """Crop each image (N, C, H, W) from its zero-padded self and flip it left to right where drawn.

    One gather for the whole batch, on the images' device; the result is in channels-last memory order.
    """
    n, _, height, width = images.shape
    device = images.device
    rows = draw.offset[:, :1] + torch.arange(height, device=device)
    columns = torch.arange(width, device=device).expand(n, -1)
    columns = draw.offset[:, 1:] + torch.where(draw.flip[:, None], width - 1 - columns, columns)
    padded = F.pad(images, (padding, padding, padding, padding))
    batch = torch.arange(n, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
