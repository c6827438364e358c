"""Datasets by name. Nothing is ever downloaded unasked. Importing this imports no torch.

`catalogue` says what datasets there are, a reader (`cifar`, `mat5` for SVHN, `tiny_imagenet`, `imagenet`, `folders`,
`embedded`) reads one from its official files, and `load` below puts the two together.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regmixup.data.catalogue import FAMILIES, find, names, register

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from regmixup.data.catalogue import Dataset
    from regmixup.data.images import ImageSet
    from regmixup.data.inventory import Report

__all__ = ["FAMILIES", "corrupt", "from_dataset", "load", "names", "register", "verify"]


def load(name: str, *, root: str | Path | None = None) -> ImageSet | Any:
    """Load a dataset by name: "digits/train", "cifar10/test", "cifar10-c/fog/3", "path:cifar10/test", "folder:PATH".

    root: the folder with the official files, for datasets that are read from disk (the embedded ones need none);
    default, the environment variable REGMIXUP_DATA, or the cache folder.

    The result is an `ImageSet`, except for ImageNet's family and `folder:`, which do not fit in memory: those are
    a `FolderSet`. Both are `images.LabelledImages`. Content that is known and differs is an error.
    """
    from regmixup.data.files import data_root

    dataset, root = find(name), data_root(root)
    if dataset.is_interpolated:
        from regmixup.data.images import interpolate

        if not dataset.in_memory:
            raise ValueError(f"{name}: interpolations need a dataset in memory, {dataset.whole} is one of files")
        return interpolate(load(name.removeprefix("path:"), root=root))
    if dataset.part and dataset.is_folder:
        from regmixup.data.folders import load_part

        return load_part(dataset, root)
    if part := dataset.part:
        from regmixup.data.splits import split_indices

        whole = load(part.of, root=root)
        cuts = "-".join(f"{100 * fraction:g}" for fraction in part.fractions)
        # The content of a registered dataset may change, and the split with it.
        store = None if dataset.loader else root / "splits" / f"{part.of.replace('/', '-')}-{cuts}.json"
        index = split_indices(whole.labels, part.fractions, store=store)[part.index]
        return whole.select(index, name=name, info={"part_of": part.of, "whole": whole.fingerprint})
    images = read(name, root)
    if dataset.content:
        from regmixup.data.inventory import check_content

        check_content(images, dataset, root)
    return images


def read(name: str, root: Path) -> ImageSet | Any:
    """Read a dataset from its files, without comparing it with what is known about it."""
    dataset = find(name)
    if dataset.loader is not None:
        return _from_loader(dataset, root)
    if dataset.files:
        from regmixup.data.files import check_files

        check_files(dataset, root)
    module, _, function = dataset.reader.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), function)(dataset, root)


def _from_loader(dataset: Dataset, root: Path) -> ImageSet | Any:
    """Return what the loader of a registered dataset returns, under the dataset's name."""
    from dataclasses import replace

    from regmixup.data.folders import FolderSet
    from regmixup.data.images import ImageSet, from_dataset

    loader = dataset.loader
    assert loader is not None
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(loader).parameters.values()
    takes_root = any(p.name == "root" or (p.kind in places and p.default is p.empty) for p in parameters)
    found = loader(root) if takes_root else loader()
    if isinstance(found, FolderSet) != dataset.on_disk:
        raise ValueError(f"{dataset.name}: register it with on_disk={not dataset.on_disk}, got {type(found).__name__}")
    if isinstance(found, (ImageSet, FolderSet)):
        return replace(found, name=dataset.name)
    if not (hasattr(found, "__len__") and hasattr(found, "__getitem__")):
        raise ValueError(f"{dataset.name}: its loader must return an ImageSet or a torch dataset, got {found!r}")
    return from_dataset(found, dataset.name)


def verify(name: str, *, root: str | Path | None = None) -> Report:
    """Compare a dataset's content with what is known about it; see `regmixup.data.inventory.verify`."""
    from regmixup.data import inventory

    return inventory.verify(name, root)


def from_dataset(dataset: Any, name: str) -> ImageSet:
    """Read a torch dataset of (image, label) pairs into memory; see `regmixup.data.images.from_dataset`."""
    from regmixup.data import images

    return images.from_dataset(dataset, name)


def corrupt(
    images: Tensor,
    name: str,
    *,
    severity: int,
    generator: torch.Generator | None = None,
    constants: Literal["auto", "cifar", "imagenet", "digits"] = "auto",
) -> Tensor:
    """Corrupt uint8 images (N, 3 or 1, H, W); see `regmixup.data.corruptions.corrupt`."""
    from regmixup.data import corruptions

    return corruptions.corrupt(images, name, severity=severity, generator=generator, constants=constants)
