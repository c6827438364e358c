"""Load a dataset by name: the record from the catalogue, the images from a reader, parts and lists cut from the whole.

Importing this imports no torch.
"""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regmixup.data.catalogue import find
from regmixup.data.files import check_files, data_root, file_sum, is_rebuilt, wrong_file
from regmixup.data.records import Dataset
from regmixup.names import counted, shortened

if TYPE_CHECKING:
    from regmixup.data.folders import FolderSet
    from regmixup.data.images import ImageSet


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

        if not dataset.in_memory:
            raise ValueError(f"{name}: interpolations need a dataset in memory, {dataset.whole} is one of files")
        return interpolate(load(name.removeprefix("path:"), root=root))
    if dataset.part:
        return _load_part(dataset, root)
    if dataset.listed:
        from regmixup.data.readers.image_list import listed_indices

        check_files(dataset, root)
        whole = load(dataset.listed.of, root=root)
        info = {"part_of": whole.name, "whole": whole.fingerprint}
        return whole.select(listed_indices(whole, dataset.listed, root), name=name, info=info)
    return _load_whole(dataset, root)


def load_files(name: str, root: Path | None = None) -> FolderSet:
    """Load a folder or a part of one."""
    from regmixup.data.folders import FolderSet

    images = load(name, root=root)
    assert isinstance(images, FolderSet)
    return images


def _load_part(dataset: Dataset, root: Path) -> ImageSet | Any:
    """Load a part of a stratified split: of a folder by the content of its files, else by the places of the images."""
    import torch

    from regmixup.data.folders import cut_folder
    from regmixup.data.splits import stratified

    assert dataset.part is not None
    whole: Any = load(dataset.part.of, root=root)
    if dataset.is_folder:
        whole, pieces = cut_folder(whole, dataset, root)
    else:
        pieces = stratified(whole.labels, dataset.part.fractions)
    index = torch.cat([pieces[piece] for piece in dataset.part.pieces]).sort().values
    return whole.select(index, name=dataset.name, info={"part_of": dataset.part.of, "whole": whole.fingerprint})


def _load_whole(dataset: Dataset, root: Path) -> ImageSet | Any:
    """Read a dataset from its files, and compare its size and content with what is known."""
    if dataset.loader is not None:
        return _from_loader(dataset, root)
    check_files(dataset, root)
    module, _, function = dataset.reader.partition(":")
    images = getattr(import_module(f"regmixup.data.{module}"), function)(dataset, root)
    if is_rebuilt(dataset, root):
        return replace(images, info={**images.info, "rebuilt": "true"})
    if dataset.images is not None and len(images) != dataset.images:
        raise wrong_file(root / dataset.files[-1], f"{dataset.images} images", len(images))
    _check_content(images, dataset, root)
    return images


def _check_content(images: ImageSet, dataset: Dataset, root: Path) -> None:
    """Raise if the content of a dataset is known and differs, unless the file is the one that was published."""
    known = dataset.content
    if known is None:
        return
    labels = hashlib.sha256(images.labels.numpy().astype("u1").data).hexdigest()
    if (images.fingerprint, labels) == (known.pixels, known.labels):
        return
    file = dataset.files[-1]
    published = dataset.checksums.get(file)
    if published is None or file_sum(root / file, published) != published:
        differing = "pixels" if images.fingerprint != known.pixels else "labels"
        expected, got = (known.pixels, images.fingerprint) if differing == "pixels" else (known.labels, labels)
        raise wrong_file(root / file, f"{differing} with SHA-256 {expected}", got)


def _from_loader(dataset: Dataset, root: Path) -> ImageSet | Any:
    """Return what the loader of a registered dataset returns, under the dataset's name."""
    from regmixup.data.folders import FolderSet
    from regmixup.data.images import ImageSet, from_dataset

    loader = dataset.loader
    assert loader is not None
    parameters = inspect.signature(loader).parameters
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind in places and p.default is p.empty for p in parameters.values()):
        images = loader(root)
    elif "root" in parameters:
        images = loader(root=root)
    else:
        images = loader()
    if isinstance(images, FolderSet) != dataset.on_disk:
        raise ValueError(f"{dataset.name}: register it with on_disk={not dataset.on_disk}, got {type(images).__name__}")
    if isinstance(images, (ImageSet, FolderSet)):
        return replace(images, name=dataset.name)
    if not (hasattr(images, "__len__") and hasattr(images, "__getitem__")):
        raise ValueError(f"{dataset.name}: its loader must return an ImageSet or a torch dataset, got {images!r}")
    return from_dataset(images, dataset.name)


def describe_classes(name: str, root: str | Path | None = None) -> str:
    """Return a line with the classes of `folder:PATH` or a part of it, and how many images each has; "" for others."""
    if not find(name).is_folder:
        return ""
    from regmixup.data.folders import SHOWN, printable_names

    images = load_files(name, data_root(root))
    counts = images.labels.bincount().tolist()
    entries = [f"{printable_names([c])} {count:,}" for c, count in zip(images.classes, counts, strict=True)]
    return f"{name}: {counted(len(images), 'image')} of {counted(len(entries), 'class')}: {shortened(entries, SHOWN)}"
