"""Labelled images: `ImageSet` holds pixels, `FolderSet` the paths of image files.

Both have a length, labels, classes, a fingerprint, a selection, and parts in memory, so most callers take either.

`path:NAME` is interpolations between pairs of a dataset's images, for the entropy-versus-lambda profile (Figure 3):
1,000 random pairs with different labels; for each, 20 equally spaced lambdas from 0 to 1, pair after pair: image (p, l)
is lam_l x_i(p) + (1 - lam_l) x_j(p), kept in float32. Mixing pixels and mixing normalised pixels is the same, since
mixing is affine. The label is that of the nearer end.
"""

from __future__ import annotations

import hashlib
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Subset

from regmixup.data.decode import EXTENSIONS, Decoder, decode_all, open_rgb
from regmixup.data.splits import generator_for
from regmixup.mixing import to_float
from regmixup.names import counted

PAIRS, LAMBDAS = 1000, 20


@dataclass(frozen=True)
class ImageSet:
    """Images in memory.

    images: (N, C, H, W) uint8; derived sets may be float32 in [0, 1]. labels: (N,) int64. classes: the class names, in
    label order. name: what `load` was asked for. info: facts about it.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    name: str
    info: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        images = self.images
        if images.ndim != 4 or not (images.dtype == torch.uint8 or images.is_floating_point()):
            raise ValueError(
                f"{self.name}: images must be uint8 or float (N, C, H, W), got {images.dtype} {tuple(images.shape)}"
            )
        if len(images) == 0:
            raise ValueError(f"{self.name}: the dataset is empty")
        check_labels(self.name, self.labels, len(images), self.classes)

    def __repr__(self) -> str:
        size, classes = "x".join(map(str, self.shape)), counted(len(self.classes), "class")
        return f"ImageSet({self.name!r}, {counted(len(self), 'image')} of {size} {self.images.dtype}, {classes})"

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        _, channels, height, width = self.images.shape
        return channels, height, width

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the pixel array in (N, H, W, C) order: the same whatever archive the images came from."""
        digest = hashlib.sha256()
        for part in self.images.split(1000):
            digest.update(part.permute(0, 2, 3, 1).contiguous().numpy().data)
        return digest.hexdigest()

    def select(self, index: Tensor) -> ImageSet:
        """Return the images at `index`, in that order."""
        return replace(self, images=self.images[index], labels=self.labels[index])

    def parts(self, decode: Decoder, *, size: int = 1000) -> Iterator[ImageSet]:
        """Yield itself: the images are in memory."""
        yield self


@dataclass(frozen=True)
class FolderSet:
    """Image files, not decoded. Labels, classes, name and info are as in `ImageSet`.

    paths: N paths that can be opened. folder: the folder that all of them begin with.
    digests: the SHA-256 of each file, where they have been read, as for the parts of a folder.
    """

    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    name: str
    folder: Path
    info: dict[str, str] = field(default_factory=dict)
    digests: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError(f"{self.name}: {self.folder} holds no images ({', '.join(EXTENSIONS)}) in class folders")
        check_labels(self.name, self.labels, len(self.paths), self.classes)

    def __repr__(self) -> str:
        return f"FolderSet({self.name!r}, {counted(len(self), 'file')}, {counted(len(self.classes), 'class')})"

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> None:
        """None: files have any size, until a reader brings them to one."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the sorted lines "relative path, tab, size in bytes": computed without reading a file.

        Where the files have been read, their SHA-256 stand in place of the sizes. Where a table labels them, and not
        their folders, the name of the class follows.
        """
        start = len(str(self.folder)) + 1
        contents = self.digests or [str(Path(path).stat().st_size) for path in self.paths]
        lines = []
        for path, content, label in zip(self.paths, contents, self.labels.tolist(), strict=True):
            relative = path[start:].replace(os.sep, "/")
            suffix = f"\t{self.classes[label]}" if "table" in self.info else ""
            lines.append(f"{relative}\t{content}{suffix}")
        return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()

    def select(self, index: Tensor) -> FolderSet:
        """Return the files at `index`, in that order."""
        return replace(
            self,
            paths=tuple(self.paths[i] for i in index.tolist()),
            labels=self.labels[index],
            digests=tuple(self.digests[i] for i in index.tolist()) if self.digests else (),
        )

    def parts(self, decode: Decoder, *, size: int = 1000) -> Iterator[ImageSet]:
        """Yield the images in memory, each as `decode` returns it, `size` at a time, in order."""
        for index in torch.arange(len(self)).split(size):
            part = self.select(index)
            yield ImageSet(decode_all(part.paths, decode), part.labels, part.classes, part.name, part.info)


LabelledImages = ImageSet | FolderSet
"""The images that training, prediction and evaluation take, wherever the pixels are."""


def check_labels(name: str, labels: Tensor, count: int, classes: Sequence[str]) -> None:
    """Raise unless there is one label of a class for each of a dataset's images."""
    if labels.dtype != torch.int64 or labels.shape != (count,):
        raise ValueError(
            f"{name}: labels must be int64 of shape ({count},), one class per image, "
            f"got {labels.dtype} {tuple(labels.shape)}"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(classes):
        raise ValueError(f"{name}: labels must lie in [0, {len(classes)}), got values from {low} to {high}")


def labels_among(classes: tuple[str, ...], known: Sequence[str]) -> Tensor:
    """Return for each class of a dataset its label among a model's classes, by name; -1 for an unknown one."""
    position = {name: label for label, name in enumerate(known)}
    return torch.tensor([position.get(name, -1) for name in classes])


def luma(x: Tensor) -> Tensor:
    """Return the grey value 0.299 R + 0.587 G + 0.114 B of floating-point images: (..., 3, H, W) -> (..., 1, H, W).

    These are the weights of ITU-R BT.601, which Pillow and torchvision use. A grey image, of one channel, is its own.
    """
    if x.shape[-3] == 1:
        return x
    red, green, blue = x.unbind(-3)
    return (0.299 * red + 0.587 * green + 0.114 * blue).unsqueeze(-3)


def to_grey(images: Tensor) -> Tensor:
    """Return images with one channel, uint8 or floating point: (..., 3, H, W) -> (..., 1, H, W).

    uint8 is rounded as in Pillow's mode "L", bit for bit, so that a grey file comes out as it is stored.

    >>> red, grey = [255, 0, 0], [77, 77, 77]
    >>> [to_grey(torch.tensor(pixel, dtype=torch.uint8).view(3, 1, 1)).item() for pixel in (red, grey)]
    [76, 77]
    """
    if images.shape[-3] == 1 or images.is_floating_point():
        return luma(images)
    red, green, blue = images.int().unbind(-3)
    return ((19595 * red + 38470 * green + 7471 * blue + (1 << 15)) >> 16).to(torch.uint8).unsqueeze(-3)


def from_dataset(dataset: Any, name: str) -> ImageSet:
    """Read every (image, label) pair of a torch dataset, one with `__len__` and `__getitem__`, into memory.

    An image may be a PIL image, a NumPy array (H, W, C) or (H, W), or a tensor (C, H, W) or (H, W); all of one size.
    uint8 stays uint8; floating point must lie in [0, 1], so leave normalisation to the network. The class names are
    the dataset's `classes` if it, or the one that it is a `Subset` of, has them, else numbers.
    """
    try:
        pairs = [dataset[index] for index in range(len(dataset))]
        images = [_to_tensor(image) for image, _ in pairs]
        labels = [operator.index(label) for _, label in pairs]
        pixels = torch.stack(images)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} must be a dataset of (image, label) pairs: images of one size, PIL, array or tensor, and integer "
            f"labels; {error}"
        ) from error
    if pixels.is_floating_point() and not (float(pixels.min()) >= 0 and float(pixels.max()) <= 1):
        raise ValueError(
            f"{name}: floating-point images must lie in [0, 1], got {float(pixels.min()):g} to "
            f"{float(pixels.max()):g}; remove normalisation from the dataset's transform"
        )
    while isinstance(dataset, Subset):  # as of `random_split`
        dataset = dataset.dataset
    classes = tuple(map(str, getattr(dataset, "classes", None) or range(max(labels) + 1)))
    if len(set(classes)) < len(classes):  # a model and a set are matched by these names
        raise ValueError(f"{name}: classes must have different names, got {classes}")
    return ImageSet(pixels, torch.tensor(labels, dtype=torch.int64), classes, name)


def _to_tensor(image: Any) -> Tensor:
    """Return one image as (C, H, W), uint8 or float32."""
    if isinstance(image, Image.Image):
        if image.mode.startswith("I;16"):
            image = open_rgb(image)  # scales, where Pillow would clip at 255
        image = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    if isinstance(image, np.ndarray):
        image = torch.from_numpy(np.array(image.transpose(2, 0, 1) if image.ndim == 3 else image))
    if not isinstance(image, Tensor):
        raise TypeError(f"got an image of type {type(image).__name__}")
    image = image.unsqueeze(0) if image.ndim == 2 else image
    return image.float() if image.is_floating_point() else image


def interpolate(source: LabelledImages, *, pairs: int = PAIRS, lambdas: int = LAMBDAS) -> ImageSet:
    """Return the set of `pairs` x `lambdas` images that lie between pairs of a dataset's images."""
    if not isinstance(source, ImageSet):
        raise ValueError(f"path:{source.name}: interpolations need a dataset in memory, {source.name} is one of files")
    first, second = pair_ends(source, pairs=pairs)
    lam = torch.linspace(0, 1, lambdas, dtype=torch.float64)
    images = to_float(source.images)
    weight = lam.float().reshape(1, -1, 1, 1, 1)
    mixed = weight * images[first].unsqueeze(1) + (1 - weight) * images[second].unsqueeze(1)
    labels = torch.where(lam >= 0.5, source.labels[first, None], source.labels[second, None])
    info = {"pairs": str(pairs), "lambdas": str(lambdas)}
    return ImageSet(mixed.flatten(0, 1), labels.flatten(), source.classes, f"path:{source.name}", info)


def pair_ends(source: ImageSet, *, pairs: int = PAIRS) -> tuple[Tensor, Tensor]:
    """Draw pairs of images, uniform over those with different labels.

    Returns the indices i and j, (pairs,) each, of the images at lambda = 1 and at lambda = 0.
    """
    labels = source.labels
    if int(labels.min()) == int(labels.max()):
        raise ValueError(f"path:{source.name} needs at least two classes, {source.name} holds one")
    generator = generator_for(0, "path", source.fingerprint)
    kept = torch.empty(0, 2, dtype=torch.int64)
    while len(kept) < pairs:
        drawn = torch.randint(len(labels), (2 * pairs, 2), generator=generator)
        kept = torch.cat([kept, drawn[labels[drawn[:, 0]] != labels[drawn[:, 1]]]])
    return kept[:pairs, 0], kept[:pairs, 1]
