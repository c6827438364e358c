"""The resident loader: the whole dataset on the training device, batches by indexing, no Python per image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from regmixup.config import check_count
from regmixup.data.augment import crop_and_flip, draw_augmentation
from regmixup.data.images import ImageSet
from regmixup.data.seeds import generator_for
from regmixup.types import Batch


class Loader(Protocol):
    """The contract of both loaders: an epoch is a function of its number, and can be entered at any batch."""

    device: torch.device

    @property
    def num_images(self) -> int: ...
    def __len__(self) -> int: ...
    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]: ...


def epoch_batches(
    count: int, batch_size: int, seed: int, epoch: int, *, shuffle: bool = True, rank: int = 0, world: int = 1
) -> list[Tensor]:
    """The image indices of each batch of an epoch: a permutation from (seed, epoch), cut, the partial batch kept.

    With several ranks every global batch is dealt out in turn, so the shards of a batch never overlap, their sizes
    differ by at most one, and together they are the batch that a single process would see. A last batch of fewer
    images than ranks leaves some ranks an empty one.

    >>> [batch.tolist() for batch in epoch_batches(5, 2, seed=0, epoch=0, shuffle=False)]
    [[0, 1], [2, 3], [4]]
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank must lie in [0, {world}), got {rank}")
    order = torch.randperm(count, generator=generator_for(seed, "order", epoch)) if shuffle else torch.arange(count)
    return [batch[rank::world] for batch in order.split(batch_size)]


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

    @property
    def num_images(self) -> int:
        """Images per epoch, over all ranks."""
        return len(self.images)

    def __len__(self) -> int:
        """Batches per epoch."""
        return -(-self.num_images // self.batch_size)

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on; x stays uint8."""
        batches = epoch_batches(self.num_images, self.batch_size, self.seed, epoch, rank=self.rank, world=self.world)
        # One copy to the device for the whole epoch; augmentation is drawn per image, so ranks agree on it.
        index = torch.cat(batches).to(self.device)
        draw = draw_augmentation(
            self.num_images, padding=self.padding, flip=self.flip, generator=generator_for(self.seed, "augment", epoch)
        ).to(self.device)
        position = sum(len(batch) for batch in batches[:start])
        for batch in batches[start:]:
            chosen = index[position : position + len(batch)]
            position += len(batch)
            x = self.images[chosen]
            if self.padding or self.flip:
                x = crop_and_flip(x, draw[chosen], self.padding)
            yield Batch(x, self.labels[chosen])
