"""Loaders for training, and images without augmentation for everything else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from regmixup.data.decode import Decoder, EvalTransform, Source, cut_out, described, open_rgb, to_pixel, upright
from regmixup.data.files import explaining_damage
from regmixup.data.images import FolderSet, ImageSet, LabelledImages, to_grey
from regmixup.data.loader import Loader, ResidentLoader
from regmixup.data.streaming import StreamingLoader
from regmixup.recipes import RECIPES
from regmixup.training.config import TrainConfig
from regmixup.types import Batch

AS_TRAINED = "resize it as those were"
"""Advice about an image of another size than the train images, which no transform resizes."""


def make_loaders(
    dataset: LabelledImages, config: TrainConfig, device: torch.device, *, workers: int | None, mine: Sequence[int]
) -> list[Loader]:
    """Return a loader of training batches for each of the shards that are this process's.

    Images in memory get a resident loader; image files, and images in memory that RandAugment augments one by one, a
    streaming one.

    workers: processes that decode files, all loaders together; None: one per core, at most 4. mine: numbers of shards.
    """
    order: dict[str, Any] = {"batch_size": config.batch_size, "seed": config.seed, "device": device}
    if isinstance(dataset, ImageSet) and not config.rand_augment:
        loader: Loader = ResidentLoader(
            dataset, padding=config.crop_padding, flip=config.flip, cutout=config.cutout, fill=config.mean, **order
        )
    else:
        workers = min(4, os.cpu_count() or 1) if workers is None else workers
        loader = StreamingLoader(
            dataset.paths if isinstance(dataset, FolderSet) else dataset.images,
            dataset.labels,
            transform=train_transform(config, shape=dataset.shape),
            shape=input_shape(dataset, config),
            epochs=config.total_epochs,
            workers=-(-workers // len(mine)),
            **order,
        )
    return [loader.shard(number, config.num_shards) for number in mine]


def one_more_epoch(
    dataset: LabelledImages, config: TrainConfig, device: torch.device, *, workers: int | None = None
) -> Iterator[Batch]:
    """Yield the batches of the epoch that would follow the last, each as a whole."""
    (loader,) = make_loaders(dataset, replace(config, shards=1), device, workers=workers, mine=[0])
    yield from loader.epoch(config.total_epochs)


def train_transform(config: TrainConfig, *, shape: tuple[int, int, int] | None) -> Any:
    """Return how worker processes augment an image: a torchvision transform that draws from torch's global generator.

    Files: the paper's ImageNet augmentation, a random crop resized to the size of the network, flip, colour jitter.
    Images in memory: a crop of the image padded, flip. Then RandAugment and Cutout, for both.

    shape: (C, H, W) of images in memory; None for files.
    """
    from torchvision.transforms import v2

    steps: list[Any] = [upright] if config.orient else []
    if shape is not None:
        steps.append(v2.RandomCrop(shape[1:], config.crop_padding))
    else:
        modes = (v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC)
        crops = [v2.RandomResizedCrop(config.image_size, (config.crop_area, 1.0), interpolation=mode) for mode in modes]
        steps.append(v2.RandomChoice(crops) if config.interpolation == "random" else crops[0])
    steps.append(v2.RandomHorizontalFlip(0.5 if config.flip else 0.0))
    if config.color_jitter and shape is None:
        steps.append(v2.ColorJitter(config.color_jitter, config.color_jitter, config.color_jitter))
    if config.rand_augment:
        steps.append(v2.RandAugment(config.rand_augment, config.magnitude))
    if config.cutout:
        steps += [v2.PILToTensor(), partial(cut_out, side=config.cutout, fill=to_pixel(config.mean))]
    return v2.Compose(steps)


def input_shape(dataset: LabelledImages, config: TrainConfig) -> tuple[int, int, int]:
    """Return channels, height and width of what the network sees; an error if they do not suit the configuration."""
    channels, height, width = dataset.shape or (3, config.image_size, config.image_size)
    if len(config.mean) != channels:
        raise ValueError(
            f"mean and std must have one value for each of the {channels} channels of {dataset.name}, got "
            f"{config.mean} and {config.std}: choose a recipe for such images, or give both"
        )
    return channels, height, width


def check_for_files(dataset: LabelledImages, config: TrainConfig) -> None:
    """Raise for settings that have an effect on image files alone, or on images in memory alone."""
    if dataset.shape is None:
        if config.crop_padding not in [recipe.crop_padding for recipe in RECIPES.values()]:
            contract = f"crop_padding must be {TrainConfig.crop_padding} for image files, whose crops follow crop_area"
            raise ValueError(f"{contract}, got {config.crop_padding}")
        return
    for name in ("image_size", "crop_area", "color_jitter", "orient"):
        value, default = getattr(config, name), getattr(TrainConfig, name)
        is_their_size = name == "image_size" and value in dataset.shape[1:]
        if value != default and not is_their_size:
            contract = f"{name} must be {default} for {dataset.name}, whose images are in memory and keep their size"
            raise ValueError(f"{contract}, got {value}")


def some_parts(dataset: LabelledImages, rows: range, decode: Decoder) -> Iterator[ImageSet]:
    """Yield the images of a dataset that lie in `rows`, a part at a time, see `FolderSet.parts`."""
    if len(rows) == len(dataset):  # which copies nothing
        yield from dataset.parts(decode)
    elif rows:
        yield from dataset.select(torch.arange(rows.start, rows.stop)).parts(decode)


def evaluation_transform(config: TrainConfig, *, files: bool) -> EvalTransform | None:
    """Return how image files are brought to the size of a network trained on files: in the paper's ratio of 256 to 224.

    None where it was trained on images in memory, whose size files must have as they are.
    """
    if not files:
        return None
    crop, how = config.image_size, config.eval_interpolation
    return EvalTransform(size=crop, resize=round(crop * 256 / 224), interpolation=how, orient=config.orient)


def make_decoder(transform: EvalTransform | None, size: Sequence[int], hint: str = AS_TRAINED) -> Decoder:
    """Return a function from a file to an RGB image of (height, width).

    transform: how files are resized; None refuses those of another size, and the error ends with the hint.
    """
    height, width = size
    build = transform.build() if transform is not None else None

    def decode(source: Source) -> Image.Image:
        image = open_rgb(source)
        if build is not None:
            with explaining_damage(described(source), "an image"):
                return build(image)
        if image.size != (width, height):
            raise ValueError(
                f"{described(source)} must have {width}x{height} pixels, as the images in memory that the model was "
                f"trained on, got {image.width}x{image.height}: {hint}"
            )
        return image

    return decode


def match_channels(images: Tensor, channels: int) -> Tensor:
    """Convert images (N, C, H, W) to the channels of a network: colour becomes grey where there is one."""
    return to_grey(images) if channels == 1 and images.shape[1] == 3 else images
