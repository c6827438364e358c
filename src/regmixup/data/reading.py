"""Load a dataset by name: the record from the catalogue, the images from a reader, parts and lists cut from the whole.

Importing this imports no torch.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regmixup.data.catalogue import find
from regmixup.data.files import check_files, data_root, is_rebuilt, wrong_file
from regmixup.data.records import Dataset, ImageList, SplitPart

if TYPE_CHECKING:
    from torch import Tensor

    from regmixup.data.images import FolderSet, ImageSet

CONTENT = {
    "cifar10/train": "798c213aac55f7ab7d02b76cbdb1428ffe8f477cbce25514909bffc52d77b7c6",
    "cifar10/test": "4d6d7ec4623dc87bc35721672fbe70b161b95c11dfe20044a2fbacecbc62185b",
    "cifar100/train": "c18de31fa256fe940fb5e7caccc623b1cdab1dfd2d40872b7f24187c288e377f",
    "cifar100/test": "90c204b283f6b208ab5f6d3b4bb2c4bb1f2cc2c16765021958647eefb4d42dbe",
}
"""The values of `content_of` for the datasets whose content is known."""


def load(name: str, *, root: str | Path | None = None) -> ImageSet | Any:
    """Load a dataset by name: "digits/train", "cifar10/test", "cifar10-c/fog/3", "path:cifar10/test", "folder:PATH".

    root: the folder with the official files, for datasets that are read from disk (the embedded ones need none);
    default, the environment variable REGMIXUP_DATA, or the cache folder.

    The result is an `ImageSet`, except for ImageNet's family and `folder:`, which do not fit in memory: those are
    a `FolderSet`. Both are `images.LabelledImages`. Content that is known and differs is an error.
    """
    dataset, root = find(name), data_root(root)
    if dataset.is_interpolated:
        from regmixup.data.images import interpolate

        return interpolate(load(name.removeprefix("path:"), root=root))
    if dataset.listed:
        return _load_listed(dataset, dataset.listed, root)
    if dataset.part and dataset.corruption:
        return _load_corrupted(dataset, dataset.part, root)
    if dataset.part:
        return _load_part(dataset, dataset.part, root)
    if callable(dataset.reader):
        return _call(dataset.reader, dataset.name, root)
    return _read(dataset, dataset.reader, root)


def load_files(name: str) -> FolderSet:
    """Load a folder or a part of one."""
    from regmixup.data.images import FolderSet

    images = load(name)
    assert isinstance(images, FolderSet)
    return images


def _load_listed(dataset: Dataset, listed: ImageList, root: Path) -> ImageSet:
    """Load the images on a list."""
    from regmixup.data.readers.image_list import listed_indices

    check_files(dataset, root)
    whole = load(listed.of, root=root)
    return _select(whole, listed_indices(whole, listed, root), dataset.name)


def _load_part(dataset: Dataset, part: SplitPart, root: Path) -> ImageSet | Any:
    """Load a part of a split; a folder is cut by the content of its files."""
    import torch

    from regmixup.data.folders import cut_folder
    from regmixup.data.splits import stratified

    whole: Any = load(part.of, root=root)
    if dataset.is_folder:
        whole, pieces = cut_folder(whole, dataset.name, part.fractions)
    else:
        pieces = stratified(whole.labels, part.fractions)
    return _select(whole, torch.cat([pieces[number] for number in part.pieces]).sort().values, dataset.name)


def _select(whole: ImageSet | Any, index: Tensor, name: str) -> ImageSet | Any:
    """Return some images of a dataset under a name."""
    info = {**whole.info, "part_of": whole.name, "whole": whole.fingerprint}
    return replace(whole, name=name, info=info).select(index)


def _load_corrupted(dataset: Dataset, part: SplitPart, root: Path) -> ImageSet:
    """Load a part of a split and corrupt it."""
    from regmixup.data.corruptions import corrupt
    from regmixup.data.splits import generator_for

    clean = _load_clean(part, root)
    generator = generator_for(0, dataset.name)
    images = corrupt(clean.images, dataset.corruption, severity=dataset.severity, generator=generator)
    return replace(clean, name=dataset.name, images=images)


@lru_cache(maxsize=1)
def _load_clean(part: SplitPart, root: Path) -> ImageSet:
    """Load what all corrupted sets of a part are made of: once, as it means reading the whole split."""
    return _load_part(find(part.of), part, root)


def _read(dataset: Dataset, reader: str, root: Path) -> ImageSet | Any:
    """Read a dataset from its files, and compare its size and content with what is known."""
    check_files(dataset, root)
    module, _, function = reader.partition(":")
    images = getattr(import_module(f"regmixup.data.{module}"), function)(dataset, root)
    if is_rebuilt(dataset, root):
        return replace(images, info={**images.info, "rebuilt": "true"})
    if dataset.images is not None and len(images) != dataset.images:
        raise wrong_file(root / dataset.files[-1], f"{dataset.images} images", len(images))
    known = CONTENT.get(dataset.name)
    if known is not None and content_of(images) != known:
        raise wrong_file(root / dataset.files[-1], f"pixels and labels with the hash {known}", content_of(images))
    return images


def content_of(images: ImageSet) -> str:
    """Return the SHA-256 of two SHA-256: of the pixels, in (N, H, W, C) order, and of the labels, one byte each.

    Unlike a file's checksum, this does not depend on how the images were packed.
    """
    labels = hashlib.sha256(images.labels.numpy().astype("u1").data).hexdigest()
    return hashlib.sha256(f"{images.fingerprint}{labels}".encode()).hexdigest()


def _call(loader: Callable[..., Any], name: str, root: Path) -> ImageSet | Any:
    """Return what the loader of a registered dataset returns, under the dataset's name."""
    from regmixup.data.images import FolderSet, ImageSet, from_dataset

    images = loader(root=root) if "root" in inspect.signature(loader).parameters else loader()
    return replace(images, name=name) if isinstance(images, (ImageSet, FolderSet)) else from_dataset(images, name)
