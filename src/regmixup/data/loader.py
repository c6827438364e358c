"""The order of an epoch, what both loaders share, and the resident loader: the whole dataset on the training device."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.data.decode import to_pixel
from regmixup.data.images import ImageSet
from regmixup.data.splits import generator_for
from regmixup.mixing import in_box, sample_squares
from regmixup.types import Batch


def epoch_batches(count: int, batch_size: int, seed: int, epoch: int) -> list[Tensor]:
    """Return the image indices of each batch of an epoch: a permutation from (seed, epoch), split into batches.

    The last, partial batch is kept.
    """
    return list(torch.randperm(count, generator=generator_for(seed, "order", epoch)).split(batch_size))


class Loader:
    """The contract of both loaders: an epoch depends on (seed, epoch) alone, and can start at any batch.

    Images are shuffled, and the last, partial batch is kept. `picks` yields the choices for each batch, as a dataclass
    of tensors on the device, and `load` makes the batch from them: a pure tensor function, which a compiled or captured
    step can contain. `epoch` does both in turn.

    num_images: per epoch, over all shards.
    """

    def __init__(self, num_images: int, *, batch_size: int, seed: int, device: torch.device) -> None:
        self.num_images, self.batch_size, self.seed, self.device = num_images, batch_size, seed, device
        self.shard_number, self.num_shards = 0, 1

    def shard(self, shard_number: int, num_shards: int) -> Self:
        """Return a loader of one shard of the same batches, which shares the images.

        The images of each batch are dealt out to the shards in turn, so their sizes differ by at most one. Of fewer
        images than shards, some shards are empty.
        """
        part = copy.copy(self)
        part.shard_number, part.num_shards = shard_number, num_shards
        return part

    def shard_size(self, batch_images: int) -> int:
        """Return how many images of a batch are in this shard. batch_images: in all shards."""
        return len(range(self.shard_number, batch_images, self.num_shards))

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return -(-self.num_images // self.batch_size)

    def batches(self, epoch: int) -> list[Tensor]:
        """Return the image indices of each batch of an epoch, over all shards."""
        return epoch_batches(self.num_images, self.batch_size, self.seed, epoch)

    def picks(self, epoch: int, *, start: int = 0) -> Iterator[Any]:
        """Yield the choices for each batch of one epoch, starting at batch `start`."""
        raise NotImplementedError

    def load(self, picked: Any) -> Batch:
        """Return the batch that `picks` chose; x is uint8 where the images are."""
        raise NotImplementedError

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, starting at batch `start`."""
        for picked in self.picks(epoch, start=start):
            yield self.load(picked)

    def close(self) -> None:
        """End processes that are kept between epochs, if there are any."""


@dataclass(frozen=True)
class Picked:
    """The choices for a batch: which images, (N,) int64, and how each is augmented.

    offset: where the crop begins in the padded image, (N, 2) int64 row and column. flip: whether it is mirrored, (N,)
    bool. boxes: the square that Cutout fills, (N, 4), see `sample_squares`; (N, 0) without Cutout.
    """

    index: Tensor
    offset: Tensor
    flip: Tensor
    boxes: Tensor


def crop_and_flip(images: Tensor, offset: Tensor, flip: Tensor, padding: int) -> Tensor:
    """Crop each image (N, C, H, W) from its zero-padded self and flip it left to right where `flip` says so.

    This is one gather for the whole batch, on the images' device; the result is in channels-last memory order.
    """
    n, _, height, width = images.shape
    device = images.device
    rows = offset[:, :1] + torch.arange(height, device=device)
    columns = torch.arange(width, device=device).expand(n, -1)
    columns = offset[:, 1:] + torch.where(flip[:, None], width - 1 - columns, columns)
    padded = F.pad(images, (padding, padding, padding, padding))
    batch = torch.arange(n, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class ResidentLoader(Loader):
    """Augmented batches of an `ImageSet` held on the device.

    The random numbers come from the CPU, once an epoch, and are the same on every device.
    order: `batch_size`, `seed` and `device`.
    """

    def __init__(
        self,
        dataset: ImageSet,
        *,
        padding: int = 0,
        flip: bool = False,
        cutout: int = 0,
        fill: Sequence[float] = (0.0,),
        **order: Any,
    ) -> None:
        super().__init__(len(dataset), **order)
        self.images, self.labels = dataset.images.to(self.device), dataset.labels.to(self.device)
        self.padding, self.flip, self.cutout = padding, flip, cutout
        self.fill = to_pixel(fill, dataset.images.dtype).to(self.device)

    def picks(self, epoch: int, *, start: int = 0) -> Iterator[Picked]:
        batches = [batch[self.shard_number :: self.num_shards] for batch in self.batches(epoch)]
        index = torch.cat(batches)
        offset, flip, boxes = self._draw(epoch)  # for every image, so shards agree on it
        sizes = [len(batch) for batch in batches]
        # One copy to the device for the whole epoch.
        columns = [choice.to(self.device).split(sizes) for choice in (index, offset[index], flip[index], boxes[index])]
        for picked in list(zip(*columns, strict=True))[start:]:
            yield Picked(*picked)

    def _draw(self, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw the offsets, flips and squares of an epoch, for all shards."""
        count, (height, width) = self.num_images, self.images.shape[2:]
        generator = generator_for(self.seed, "augment", epoch)
        offset = torch.randint(2 * self.padding + 1, (count, 2), generator=generator)
        flip = (torch.rand(count, generator=generator) < 0.5) & self.flip
        if not self.cutout:
            return offset, flip, torch.zeros(count, 0, dtype=torch.int64)
        generator = generator_for(self.seed, "cutout", epoch)
        return offset, flip, sample_squares(self.cutout, count, (height, width), generator)

    def load(self, picked: Picked) -> Batch:
        """Return the chosen images, augmented; x stays uint8."""
        x = self.images[picked.index]
        if self.padding or self.flip:
            x = crop_and_flip(x, picked.offset, picked.flip, self.padding)
        if self.cutout:
            x = torch.where(in_box(picked.boxes, x), self.fill[:, None, None], x)
        return Batch(x, self.labels[picked.index])
