"""The resident loader: the whole dataset on the training device, batches by indexing, no Python per image."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.config import check_count
from regmixup.data.images import ImageSet
from regmixup.data.splits import generator_for
from regmixup.types import Batch


class Loader(Protocol):
    """The contract of both loaders: an epoch is a function of its number, and can start at any batch.

    `picks` yields the choices for each batch, as a dataclass of tensors on the device, and `load` makes the batch from
    them: a pure tensor function, which a compiled or captured step can contain. `epoch` does both in turn.
    """

    device: torch.device

    @property
    def num_images(self) -> int: ...
    def __len__(self) -> int: ...
    def picks(self, epoch: int, *, start: int = 0) -> Iterator[Any]: ...
    def load(self, picked: Any) -> Batch: ...
    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]: ...


def epoch_batches(
    count: int, batch_size: int, seed: int, epoch: int, *, shuffle: bool = True, rank: int = 0, world: int = 1
) -> list[Tensor]:
    """Return the image indices of each batch of an epoch: a permutation from (seed, epoch), split into batches.

    The last, partial batch is kept. With several ranks every global batch is dealt out in turn, so the shards of a
    batch never overlap, their sizes differ by at most one, and together they are the batch that a single process would
    see. If the last batch has fewer images than there are ranks, some ranks get an empty one.

    >>> [batch.tolist() for batch in epoch_batches(5, 2, seed=0, epoch=0, shuffle=False)]
    [[0, 1], [2, 3], [4]]
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank must lie in [0, {world}), got {rank}")
    order = torch.randperm(count, generator=generator_for(seed, "order", epoch)) if shuffle else torch.arange(count)
    return [batch[rank::world] for batch in order.split(batch_size)]


@dataclass(frozen=True)
class AugmentDraw:
    """The random numbers of an augmentation: crop offsets, (N, 2) int64, and whether to flip, (N,) bool."""

    offset: Tensor
    flip: Tensor

    def __getitem__(self, index: Tensor | slice) -> AugmentDraw:
        return AugmentDraw(self.offset[index], self.flip[index])

    def to(self, device: torch.device) -> AugmentDraw:
        return AugmentDraw(self.offset.to(device), self.flip.to(device))


def draw_augmentation(count: int, *, padding: int, flip: bool, generator: torch.Generator) -> AugmentDraw:
    """Draw uniform crop offsets in the image padded by `padding`, and fair coins, for `count` images."""
    offset = torch.randint(2 * padding + 1, (count, 2), generator=generator)
    coin = torch.rand(count, generator=generator) < 0.5
    return AugmentDraw(offset, coin & flip)


def crop_and_flip(images: Tensor, draw: AugmentDraw, padding: int) -> Tensor:
    """Crop each image (N, C, H, W) from its zero-padded self and flip it left to right where `draw` says so.

    This is one gather for the whole batch, on the images' device; the result is in channels-last memory order.
    """
    n, _, height, width = images.shape
    device = images.device
    rows = draw.offset[:, :1] + torch.arange(height, device=device)
    columns = torch.arange(width, device=device).expand(n, -1)
    columns = draw.offset[:, 1:] + torch.where(draw.flip[:, None], width - 1 - columns, columns)
    padded = F.pad(images, (padding, padding, padding, padding))
    batch = torch.arange(n, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Picked:
    """The choices for a batch: the indices of its images, (N,) int64, and their augmentation, see `AugmentDraw`."""

    index: Tensor
    offset: Tensor
    flip: Tensor


class ResidentLoader:
    """Shuffled, augmented batches of an `ImageSet` held on the device; the last, partial batch is kept.

    Order and augmentation of an epoch depend on (seed, epoch) alone, so any epoch can be produced without the ones
    before it. The random numbers come from the CPU, once an epoch, and are the same on every device.
    """

    def __init__(
        self,
        dataset: ImageSet,
        *,
        batch_size: int,
        seed: int,
        device: torch.device,
        padding: int = 0,
        flip: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        check_count("batch_size", batch_size)
        check_count("padding", padding, least=0)
        self.images = dataset.images.to(device)
        self.labels = dataset.labels.to(device)
        self.device = device
        self.batch_size, self.seed, self.padding, self.flip = batch_size, seed, padding, flip
        self.rank, self.world = rank, world

    def shard(self, rank: int, world: int) -> ResidentLoader:
        """Return a loader of one shard of the same batches; the images are shared."""
        part = copy.copy(self)
        part.rank, part.world = rank, world
        return part

    @property
    def num_images(self) -> int:
        """Number of images per epoch, over all ranks."""
        return len(self.images)

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return -(-self.num_images // self.batch_size)

    def picks(self, epoch: int, *, start: int = 0) -> Iterator[Picked]:
        """Yield the choices for each batch of one epoch, starting at batch `start`."""
        batches = epoch_batches(self.num_images, self.batch_size, self.seed, epoch, rank=self.rank, world=self.world)
        # One copy to the device for the whole epoch; augmentation is drawn per image, so ranks agree on it.
        order = torch.cat(batches)
        draw = draw_augmentation(
            self.num_images, padding=self.padding, flip=self.flip, generator=generator_for(self.seed, "augment", epoch)
        )[order].to(self.device)
        order = order.to(self.device)
        position = sum(len(batch) for batch in batches[:start])
        for batch in batches[start:]:
            chosen = slice(position, position + len(batch))
            position += len(batch)
            yield Picked(order[chosen], draw.offset[chosen], draw.flip[chosen])

    def load(self, picked: Picked) -> Batch:
        """Return the chosen images, augmented; x stays uint8."""
        x = self.images[picked.index]
        if self.padding or self.flip:
            x = crop_and_flip(x, AugmentDraw(picked.offset, picked.flip), self.padding)
        return Batch(x, self.labels[picked.index])

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, starting at batch `start`."""
        return map(self.load, self.picks(epoch, start=start))
