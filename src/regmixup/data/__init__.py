"""Datasets by name. Nothing is ever downloaded unasked. Importing this imports no torch.

`catalogue` says what datasets there are, one of the `readers` (or `folders`) reads one from its official files, and
`reading.load` puts the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from regmixup import plugins
from regmixup.data.catalogue import FAMILIES, add_object, names, register
from regmixup.data.reading import load
from regmixup.names import check_name

if TYPE_CHECKING:
    from regmixup.data.catalogue import Role
    from regmixup.data.corruptions import corrupt
    from regmixup.data.images import from_dataset
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
    the images, the labels and the names of the classes.
    """
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
    content = f"{images.fingerprint} {images.labels.tolist()} {images.classes}"
    end = {"validation": "/val"}.get(role, f"/{role}")
    about = f"{len(images)} images"
    name = plugins.record_object("dataset", label, type(dataset), content, version=about, end=end)
    add_object(name, images, role)
    return name


def name_transform(transform: Any) -> str:
    """Return the name under which an object serves as a transform in this process; see `register_transform`."""
    if not callable(transform):
        raise ValueError(f"transform must be callable, such as a torchvision v2 transform, got {transform!r}")
    content = plugins.described("transform", transform, "rm.data.register_transform")
    name = plugins.record_object("transform", type(transform).__name__, type(transform), content)
    TRANSFORMS[name] = transform
    return name


def transform_of(name: str) -> Callable[[Any], Any]:
    """Return a registered transform by name."""
    plugins.seek(name, TRANSFORMS)
    return TRANSFORMS[check_name("transform", name, TRANSFORMS)]
