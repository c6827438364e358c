"""Datasets by name. Nothing is ever downloaded unasked. Importing this imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regmixup.names import unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from regmixup.data.images import ImageSet


@dataclass(frozen=True)
class Family:
    """Datasets that share a name before the first slash: their full names and what loads one ("module:function")."""

    loader: str
    names: tuple[str, ...]
    description: str


DIGIT_CORRUPTIONS = ("gaussian_noise", "impulse_noise", "gaussian_blur", "brightness", "contrast")

FAMILIES = {
    "digits": Family(
        "digits:load_digits",
        ("digits/train", "digits/val", "digits/test"),
        "scikit-learn's handwritten digits, 8x8 grey; stratified 25/25/50",
    ),
    "digits-c": Family(
        "digits:load_corrupted_digits",
        tuple(f"digits-c/{name}/{severity}" for name in DIGIT_CORRUPTIONS for severity in range(1, 6)),
        "digits/test under 5 corruptions at 5 severities",
    ),
    "digits-mirrored": Family(
        "digits:load_mirrored_digits",
        ("digits-mirrored/test",),
        "near OOD: digits/test mirrored, for the classes where that is no digit",
    ),
    "photographs": Family(
        "photographs:load_photographs", ("photographs/test",), "far OOD: 8x8 patches of scikit-learn's photographs"
    ),
}

__all__ = ["FAMILIES", "corrupt", "load", "names"]


def names() -> list[str]:
    """Every dataset name; each may also be asked for as `path:NAME`."""
    return [name for family in FAMILIES.values() for name in family.names]


def check_dataset(name: str) -> Family:
    """The family of a dataset name; an unknown name is an error with the nearest match. Reads nothing."""
    plain = name.removeprefix("path:")
    family = FAMILIES.get(plain.partition("/")[0])
    if family is None or plain not in family.names:
        raise unknown("dataset", name, family.names if family else names())
    return family


def load(name: str, *, root: str | Path | None = None) -> ImageSet:
    """A dataset by name: "digits/train", "digits-c/contrast/3", "path:digits/test".

    root: the folder with the official files, for datasets that are read from disk (the embedded ones need none).
    """
    family = check_dataset(name)
    if name.startswith("path:"):
        from regmixup.data.path import interpolate

        return interpolate(load(name.removeprefix("path:"), root=root))
    module, _, function = family.loader.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), function)(name)


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
