"""The resident loader: the whole dataset on the training device, batches by indexing, no Python per image."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from regmixup.data.augment import crop_and_flip, draw_augmentation
from regmixup.data.images import ImageSet
from regmixup.data.seeds import generator_for
from regmixup.types import Batch


class ResidentLoader:
    """Shuffled, augmented batches of an `ImageSet`; the last, partial batch is kept.

    Order and augmentation of an epoch depend on (seed, epoch) alone, so any epoch can be produced without the ones
    before it.
    """

    def __init__(
        self, dataset: ImageSet, *, batch_size: int, seed: int, device: torch.device, padding: int, flip: bool
    ) -> None:
        self.images = dataset.images.to(device)
        self.labels = dataset.labels.to(device)
        self.batch_size, self.seed, self.padding, self.flip = batch_size, seed, padding, flip

    def __len__(self) -> int:
        """Batches per epoch."""
        return -(-len(self.images) // self.batch_size)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch; x stays uint8."""
        count, device = len(self.images), self.images.device
        order = torch.randperm(count, generator=generator_for(self.seed, "order", epoch)).to(device)
        draw = draw_augmentation(
            count, padding=self.padding, flip=self.flip, generator=generator_for(self.seed, "augment", epoch)
        ).to(device)
        for start in range(0, count, self.batch_size):
            part = slice(start, start + self.batch_size)
            x = self.images[order[part]]
            if self.padding or self.flip:
                x = crop_and_flip(x, draw[part], self.padding)
            yield Batch(x, self.labels[order[part]])
