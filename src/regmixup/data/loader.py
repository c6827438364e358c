"""The order of an epoch, what both loaders share, and the resident loader: the whole dataset on the training device."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.config import check_count
from regmixup.data.decode import to_pixel
from regmixup.data.images import ImageSet
from regmixup.data.splits import generator_for
from regmixup.types import Batch

Part = TypeVar("Part", Tensor, list[tuple[int, ...]])


def epoch_batches(count: int, batch_size: int, seed: int, epoch: int, *, balance: Tensor | None = None) -> list[Tensor]:
    """Return the image indices of each batch of an epoch: a permutation from (seed, epoch), split into batches.

    The last, partial batch is kept. balance: labels of all images; with them an epoch has as many images, in the order
    of `balanced_order`.
    """
    generator = generator_for(seed, "order", epoch)
    order = torch.randperm(count, generator=generator) if balance is None else balanced_order(balance, generator)
    return list(order.split(batch_size))


def balanced_order(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Return as many image indices as there are labels, every class that occurs equally often, in random order.

    Where the number of images is no multiple of that of classes, some classes, drawn anew each time, come once more.
    Within a class all images come equally often, too, up to one time; which ones come once more is random.

    >>> order = balanced_order(torch.tensor([0, 0, 0, 0, 0, 1]), torch.Generator().manual_seed(0))
    >>> (order == 5).sum().item(), len(order)
    (3, 6)
    """
    classes = labels.unique()
    least, more = divmod(len(labels), len(classes))
    favoured = torch.randperm(len(classes), generator=generator)[:more].tolist()
    chosen = []
    for number, label in enumerate(classes.tolist()):
        members, wanted = (labels == label).nonzero().flatten(), least + (number in favoured)
        turns = [torch.randperm(len(members), generator=generator) for _ in range(-(-wanted // len(members)))]
        chosen.append(members[torch.cat(turns)[:wanted]])
    together = torch.cat(chosen)
    return together[torch.randperm(len(together), generator=generator)]


def share_of(batches: list[Part], rank: int, world: int) -> list[Part]:
    """Return a rank's part of each batch: its images are dealt out to the ranks in turn.

    So parts never overlap, their sizes differ by at most one, and together they are the batch that a single process
    would see. If the last batch has fewer images than there are ranks, some ranks get an empty one.
    """
    return [batch[rank::world] for batch in batches]


class Loader:
    """The contract of both loaders: an epoch depends on (seed, epoch) alone, and can start at any batch.

    Images are shuffled, and the last, partial batch is kept. `picks` yields the choices for each batch, as a dataclass
    of tensors on the device, and `load` makes the batch from them: a pure tensor function, which a compiled or captured
    step can contain. `epoch` does both in turn.

    num_images: per epoch, over all ranks. balanced: whether the order is `balanced_order`. rank, world: see `share_of`.
    """

    def __init__(
        self,
        labels: Tensor,
        *,
        batch_size: int,
        seed: int,
        device: torch.device,
        balanced: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        check_count("batch_size", batch_size)
        self.num_images, self.batch_size, self.seed, self.device = len(labels), batch_size, seed, device
        self.balance = labels if balanced else None
        self.rank, self.world = rank, world

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return -(-self.num_images // self.batch_size)

    def batches(self, epoch: int) -> list[Tensor]:
        """Return the image indices of each batch of an epoch, over all ranks."""
        return epoch_batches(self.num_images, self.batch_size, self.seed, epoch, balance=self.balance)

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
    bool. boxes: what is erased, see `draw_boxes`.
    """

    index: Tensor
    offset: Tensor
    flip: Tensor
    boxes: Tensor


def draw_crops(count: int, *, padding: int, flip: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw uniform crop offsets in the image padded by `padding`, (N, 2), and fair coins for flips, (N,) bool."""
    offset = torch.randint(2 * padding + 1, (count, 2), generator=generator)
    coin = torch.rand(count, generator=generator) < 0.5
    return offset, coin & flip


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


def draw_boxes(count: int, size: Sequence[int], *, probability: float, generator: torch.Generator) -> Tensor:
    """Draw rectangles to erase, (N, 4) int64 of top, left, height and width; the last two are 0 where nothing is.

    They have the distribution of torchvision's `RandomErasing`: 0.02 to 0.33 of the area, the logarithm of the ratio of
    height to width uniform between those of 0.3 and 3.3, ten tries for one that fits, any place.
    """
    height, width = size
    coin = torch.rand(count, generator=generator) < probability
    area, ratio, place = torch.rand(3, count, 10, generator=generator, dtype=torch.float64)
    area = height * width * (0.02 + (0.33 - 0.02) * area)
    ratio = torch.exp(math.log(0.3) + (math.log(3.3) - math.log(0.3)) * ratio)
    tall, wide = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
    fits = (tall < height) & (wide < width)
    first = fits.int().argmax(dim=1, keepdim=True)
    erased = coin & fits.any(dim=1)
    tall, wide = (torch.where(erased, side.gather(1, first)[:, 0], 0) for side in (tall, wide))
    top = (place[:, 0] * (height - tall + 1)).long()
    left = (place[:, 1] * (width - wide + 1)).long()
    return torch.stack([top, left, tall, wide], dim=1)


def erase(images: Tensor, boxes: Tensor, fill: Tensor) -> Tensor:
    """Fill a rectangle of each image (N, C, H, W) with one value per channel, (C,). boxes: see `draw_boxes`."""
    top, left, tall, wide = (side[:, None] for side in boxes.unbind(1))
    rows, columns = (torch.arange(side, device=images.device)[None] for side in images.shape[2:])
    inside = ((rows >= top) & (rows < top + tall))[:, :, None] & ((columns >= left) & (columns < left + wide))[:, None]
    return torch.where(inside[:, None], fill[:, None, None], images)


class ResidentLoader(Loader):
    """Augmented batches of an `ImageSet` held on the device.

    The random numbers come from the CPU, once an epoch, and are the same on every device. order: as in `Loader`.
    """

    def __init__(
        self,
        dataset: ImageSet,
        *,
        padding: int = 0,
        flip: bool = False,
        erasing: float = 0.0,
        fill: Sequence[float] = (0.0,),
        **order: Any,
    ) -> None:
        super().__init__(dataset.labels, **order)
        self.images, self.labels = dataset.images.to(self.device), dataset.labels.to(self.device)
        self.padding, self.flip, self.erasing = padding, flip, erasing
        self.fill = to_pixel(fill, dataset.images.dtype).to(self.device)

    def shard(self, rank: int, world: int) -> ResidentLoader:
        """Return a loader of one shard of the same batches; the images are shared."""
        part = copy.copy(self)
        part.rank, part.world = rank, world
        return part

    def picks(self, epoch: int, *, start: int = 0) -> Iterator[Picked]:
        batches = share_of(self.batches(epoch), self.rank, self.world)
        order = drawn = torch.cat(batches)  # augmentation is drawn per image, so ranks agree on it
        if self.balance is not None:  # an image may come several times, each time augmented anew: drawn per place
            places = torch.arange(self.num_images).split(self.batch_size)
            drawn = torch.cat(share_of(list(places), self.rank, self.world))
        sizes = [len(batch) for batch in batches]
        choices = (order, *(choice[drawn] for choice in self._draw(epoch)))
        # One copy to the device for the whole epoch.
        parts = [choice.to(self.device).split(sizes)[start:] for choice in choices]
        yield from map(Picked, *parts)

    def _draw(self, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Draw the offsets, flips and boxes of an epoch, for all ranks."""
        count, generator = self.num_images, generator_for(self.seed, "augment", epoch)
        offset, flip = draw_crops(count, padding=self.padding, flip=self.flip, generator=generator)
        boxes = torch.zeros(count, 4, dtype=torch.int64)
        if self.erasing:
            generator, size = generator_for(self.seed, "erase", epoch), self.images.shape[2:]
            boxes = draw_boxes(count, size, probability=self.erasing, generator=generator)
        return offset, flip, boxes

    def load(self, picked: Picked) -> Batch:
        """Return the chosen images, augmented; x stays uint8."""
        x = self.images[picked.index]
        if self.padding or self.flip:
            x = crop_and_flip(x, picked.offset, picked.flip, self.padding)
        if self.erasing:
            x = erase(x, picked.boxes, self.fill)
        return Batch(x, self.labels[picked.index])
