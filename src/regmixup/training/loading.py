"""The right loader for a dataset: resident if it is in memory, streaming if it is files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from regmixup.data.folders import FolderSet, chunks
from regmixup.data.images import ImageSet
from regmixup.data.loader import Loader, ResidentLoader
from regmixup.data.streaming import StreamingLoader
from regmixup.data.transforms import TrainTransform
from regmixup.training.config import TrainConfig


def make_loader(dataset: ImageSet | FolderSet, config: TrainConfig, device: torch.device, workers: int) -> Loader:
    """Training batches of a dataset under a configuration. workers: processes that decode files."""
    if isinstance(dataset, ImageSet):
        return ResidentLoader(
            dataset,
            batch_size=config.batch_size,
            seed=config.seed,
            device=device,
            padding=config.crop_padding,
            flip=config.flip,
        )
    return StreamingLoader(
        dataset.paths,
        dataset.labels,
        transform=TrainTransform(size=config.image_size, flip=0.5 if config.flip else 0.0, jitter=config.color_jitter),
        batch_size=config.batch_size,
        seed=config.seed,
        device=device,
        workers=workers,
    )


def input_shape(dataset: ImageSet | FolderSet, config: TrainConfig) -> tuple[int, int, int]:
    """Channels, height and width of what the network sees."""
    if isinstance(dataset, ImageSet):
        _, channels, height, width = dataset.images.shape
        return channels, height, width
    return 3, config.image_size, config.image_size


def clean_parts(dataset: ImageSet | FolderSet, size: Sequence[int]) -> Iterator[ImageSet]:
    """The images of a dataset without augmentation, a part at a time.

    Image files are brought to the size (height, width) that a network was trained on; images in memory keep theirs.
    """
    if isinstance(dataset, ImageSet):
        yield dataset
        return
    crop = max(size)
    yield from chunks(dataset, resize=round(crop * 256 / 224), crop=crop)
