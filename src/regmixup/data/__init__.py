"""Datasets by name. Nothing is ever downloaded unasked. Importing this imports no torch.

`catalogue` says what datasets there are, a reader (`cifar`, `mat5` for SVHN, `tiny_imagenet`, `imagenet`, `folders`,
`embedded`) reads one from its official files, and `load` below puts the two together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regmixup import plugins
from regmixup.data.catalogue import FAMILIES, add_object, find, names, register
from regmixup.names import check_name

if TYPE_CHECKING:
    from regmixup.data.catalogue import Dataset, Role
    from regmixup.data.corruptions import corrupt
    from regmixup.data.images import ImageSet, from_dataset
    from regmixup.data.inventory import verify

__all__ = [
    "FAMILIES", "TRANSFORMS", "corrupt", "from_dataset", "load", "name_object", "name_transform", "names", "register",
    "register_transform", "transform_of", "verify",
]  # fmt: skip

TRANSFORMS: dict[str, Callable[[Any], Any]] = {}
"""Augmentations of users, by name."""
_PLACES = {"corrupt": "corruptions", "from_dataset": "images", "verify": "inventory"}


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__


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
    parameters = inspect.signature(loader).parameters
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind in places and p.default is p.empty for p in parameters.values()):
        found = loader(root)
    elif "root" in parameters:
        found = loader(root=root)
    else:
        found = loader()
    if isinstance(found, FolderSet) != dataset.on_disk:
        raise ValueError(f"{dataset.name}: register it with on_disk={not dataset.on_disk}, got {type(found).__name__}")
    if isinstance(found, (ImageSet, FolderSet)):
        return replace(found, name=dataset.name)
    if not (hasattr(found, "__len__") and hasattr(found, "__getitem__")):
        raise ValueError(f"{dataset.name}: its loader must return an ImageSet or a torch dataset, got {found!r}")
    return from_dataset(found, dataset.name)


def register_transform(name: str, transform: Callable[[Any], Any], *, version: str = "") -> None:
    """Make an augmentation of your own known by name, for the field `transform`. See `regmixup.plugins`.

    transform: any callable, such as a transform of `torchvision.transforms.v2`, from a PIL image (RGB, or L where the
    images in memory are grey) to a PIL image or a uint8 tensor (C, H, W) of the size that the network sees. It takes
    the place of crops, flips, colour jitter, RandAugment and erasing. Worker processes call it, with the generators of
    torch, NumPy and Python seeded for every image.
    """
    if not callable(transform):
        raise ValueError(f"transform {name} must be callable, got {transform!r}")
    plugins.record("transform", name, transform, TRANSFORMS, version=version)
    TRANSFORMS[name] = transform


def name_object(dataset: Any, role: Role, argument: str = "dataset") -> str:
    """Return the name under which an object serves as a dataset in this process: a torch `Dataset`, or images of ours.

    A map-style `Dataset` of (image, label) pairs is read into memory, see `from_dataset`. The name holds a checksum of
    the images, the labels, the names of the classes and the source of the object's class.
    """
    import hashlib

    import torch

    from regmixup.data.folders import FolderSet
    from regmixup.data.images import ImageSet, from_dataset

    if isinstance(dataset, torch.utils.data.DataLoader):
        raise ValueError(
            f"{argument} must be a dataset, got a DataLoader: give its .dataset; rm.train makes the batches"
        )
    if isinstance(dataset, (ImageSet, FolderSet)):
        images, label = dataset, dataset.name
    else:
        if isinstance(dataset, str) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise ValueError(
                f"{argument} must be a map-style torch Dataset of (image, label) or an ImageSet, got {dataset!r}. "
                "Names belong into the configuration, as train_set or validation"
            )
        label = type(dataset).__name__
        images = from_dataset(dataset, label)
        few = torch.utils.data.Subset(dataset, range(min(16, len(dataset))))
        if not torch.equal(from_dataset(few, label).images, images.images[: len(few)]):
            raise ValueError(
                f"{argument} must give the same image every time, got a {label} whose images differ when read again: "
                "leave random augmentation to rm.train, or give it as transform="
            )
    content = hashlib.sha256(f"{images.fingerprint} {images.labels.tolist()} {images.classes}".encode()).hexdigest()
    end = {"validation": "/val"}.get(role, f"/{role}")
    about = f"{len(images)} images"
    name = plugins.record_object("dataset", label, type(dataset), content=content, version=about, end=end)
    add_object(name, images, role)
    return name


def name_transform(transform: Any) -> str:
    """Return the name under which an object serves as a transform in this process; see `register_transform`."""
    if not callable(transform):
        raise ValueError(f"transform must be callable, such as a torchvision v2 transform, got {transform!r}")
    label = getattr(transform, "__name__", type(transform).__name__)
    name = plugins.record_object("transform", label, transform)
    TRANSFORMS[name] = transform
    return name


def transform_of(name: str) -> Callable[[Any], Any]:
    """Return a registered transform by name."""
    plugins.seek(name, TRANSFORMS)
    return TRANSFORMS[check_name("transform", name, TRANSFORMS)]
