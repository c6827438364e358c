"""The right loader for a dataset: resident if it is in memory, streaming if it is files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from regmixup.data.folders import FolderSet, chunks
from regmixup.data.images import ImageSet
from regmixup.data.loader import Loader, ResidentLoader
from regmixup.data.streaming import StreamingLoader
from regmixup.data.transforms import EvalTransform, TrainTransform
from regmixup.training.config import TrainConfig


def make_loaders(
    dataset: ImageSet | FolderSet, config: TrainConfig, device: torch.device, *, workers: int, mine: Sequence[int]
) -> list[Loader]:
    """Training batches of a dataset under a configuration: a loader for each of the shards that are this process's.

    workers: processes that decode files, all loaders together. mine: numbers among the config.shards of each batch.
    """
    if isinstance(dataset, ImageSet):
        whole = ResidentLoader(
            dataset,
            batch_size=config.batch_size,
            seed=config.seed,
            device=device,
            padding=config.crop_padding,
            flip=config.flip,
        )
        return [whole.shard(shard, config.num_shards) for shard in mine]
    transform = TrainTransform(
        size=config.image_size,
        interpolation=config.interpolation,
        flip=0.5 if config.flip else 0.0,
        jitter=config.color_jitter,
    )
    return [
        StreamingLoader(
            dataset.paths,
            dataset.labels,
            transform=transform,
            batch_size=config.batch_size,
            seed=config.seed,
            device=device,
            workers=-(-workers // len(mine)),
            rank=shard,
            world=config.num_shards,
        )
        for shard in mine
    ]


def input_shape(dataset: ImageSet | FolderSet, config: TrainConfig) -> tuple[int, int, int]:
    """Channels, height and width of what the network sees."""
    if isinstance(dataset, ImageSet):
        _, channels, height, width = dataset.images.shape
        return channels, height, width
    return 3, config.image_size, config.image_size


def clean_parts(dataset: ImageSet | FolderSet, size: Sequence[int], *, rows: range | None = None) -> Iterator[ImageSet]:
    """The images of a dataset without augmentation, a part at a time; all of them, or those in `rows`.

    Image files are brought to the size (height, width) that a network was trained on; images in memory keep theirs.
    """
    if rows is not None and len(rows) < len(dataset):
        if not rows:
            return
        dataset = dataset.select(torch.arange(rows.start, rows.stop))
    if isinstance(dataset, ImageSet):
        yield dataset
        return
    transform = clean_transform(size)
    yield from chunks(dataset, resize=transform.resize, crop=transform.size)


def clean_transform(size: Sequence[int]) -> EvalTransform:
    """How image files come to the size (height, width) of a network: in the paper's proportion of 256 to 224."""
    crop = max(size)
    return EvalTransform(size=crop, resize=round(crop * 256 / 224))


def match_channels(images: Tensor, channels: int) -> Tensor:
    """Images (N, C, H, W) as a network of so many channels takes them: colour becomes grey where there is one."""
    if channels != 1 or images.shape[1] != 3:
        return images
    grey = images.float().mean(dim=1, keepdim=True)
    return grey if images.is_floating_point() else grey.round().to(images.dtype)
