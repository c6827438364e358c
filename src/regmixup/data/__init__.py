"""Datasets by name. Nothing is ever downloaded unasked. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regmixup.data.corruption_names import BENCHMARK, EXTRA
from regmixup.names import unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from regmixup.data.images import ImageSet
    from regmixup.data.inventory import Report


@dataclass(frozen=True)
class Family:
    """Datasets that share a name before the first slash.

    loader: what reads one, "module:function", called with its name and the root. names: their full names.
    files: for datasets on disk, the files of each under the root; a folder's name ends in a slash.
    """

    loader: str
    names: tuple[str, ...]
    description: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A dataset that is one part of the stratified split of another."""

    of: str
    fractions: tuple[float, ...]
    index: int


PARTS = {
    "train-90": Part("train", (0.9, 0.1), 0),
    "val-10": Part("train", (0.9, 0.1), 1),
    "val-tune": Part("val", (0.1, 0.9), 0),
    "val-test": Part("val", (0.1, 0.9), 1),
}
"""Splits by the name after the slash: the 90/10 split of a train set for choosing hyper-parameters, and the tenth of
ImageNet's validation set that the paper keeps apart for tuning."""

DIGIT_CORRUPTIONS = ("gaussian_noise", "impulse_noise", "gaussian_blur", "brightness", "contrast")


def _names(family: str, *splits: str) -> tuple[str, ...]:
    return tuple(f"{family}/{split}" for split in splits)


def _corrupted(family: str, corruptions: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{family}/{name}/{severity}" for name in corruptions for severity in range(1, 6))


def _cifar_c(family: str, folder: str) -> Family:
    names = _corrupted(family, BENCHMARK + EXTRA)
    return Family(
        "cifar:load_cifar_c",
        names,
        f"{folder}: 15 benchmark and 4 extra corruptions at 5 severities",
        {name: (f"{folder}/{name.split('/')[1]}.npy", f"{folder}/labels.npy") for name in names},
    )


def _tiny_imagenet(family: str, splits: tuple[str, ...], description: str) -> Family:
    folder = "tiny-imagenet-200"
    files = {
        f"{family}/train": (f"{folder}/wnids.txt", f"{folder}/train/"),
        f"{family}/val": (f"{folder}/wnids.txt", f"{folder}/val/val_annotations.txt", f"{folder}/val/images/"),
    }
    return Family("tiny_imagenet:load_tiny_imagenet", _names(family, *splits), description, files)


def _variant(name: str, folder: str, description: str) -> Family:
    return Family("imagenet:load_variant", _names(name, "test"), description, {f"{name}/test": (f"{folder}/",)})


FAMILIES = {
    "digits": Family(
        "embedded:load_digits",
        _names("digits", "train", "val", "test"),
        "scikit-learn's handwritten digits, 8x8 grey; stratified 25/25/50",
    ),
    "digits-c": Family(
        "embedded:load_corrupted_digits",
        _corrupted("digits-c", DIGIT_CORRUPTIONS),
        "digits/test under 5 corruptions at 5 severities",
    ),
    "digits-mirrored": Family(
        "embedded:load_mirrored_digits",
        ("digits-mirrored/test",),
        "near OOD: digits/test mirrored, for the classes where that is no digit",
    ),
    "photographs": Family(
        "embedded:load_photographs", ("photographs/test",), "far OOD: 8x8 patches of scikit-learn's photographs"
    ),
    "cifar10": Family(
        "cifar:load_cifar",
        _names("cifar10", "train", "test", "train-90", "val-10"),
        "CIFAR-10, 32x32, 50,000 train and 10,000 test images",
        {
            "cifar10/train": tuple(
                f"cifar-10-batches-py/{file}" for file in ("batches.meta", *(f"data_batch_{n}" for n in range(1, 6)))
            ),
            "cifar10/test": ("cifar-10-batches-py/batches.meta", "cifar-10-batches-py/test_batch"),
        },
    ),
    "cifar100": Family(
        "cifar:load_cifar",
        _names("cifar100", "train", "test", "train-90", "val-10"),
        "CIFAR-100, 32x32, 50,000 train and 10,000 test images",
        {f"cifar100/{split}": ("cifar-100-python/meta", f"cifar-100-python/{split}") for split in ("train", "test")},
    ),
    "cifar10.1": Family(
        "cifar:load_cifar10_1",
        ("cifar10.1/test",),
        "CIFAR-10.1 v6, 2,000 new test images for CIFAR-10",
        {"cifar10.1/test": ("cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy")},
    ),
    "cifar10.2": Family(
        "cifar:load_cifar10_2",
        ("cifar10.2/test",),
        "CIFAR-10.2, 2,000 new test images for CIFAR-10",
        {"cifar10.2/test": ("cifar102_test.npz",)},
    ),
    "cifar10-c": _cifar_c("cifar10-c", "CIFAR-10-C"),
    "cifar100-c": _cifar_c("cifar100-c", "CIFAR-100-C"),
    "svhn": Family(
        "svhn:load_svhn",
        _names("svhn", "train", "test", "extra", "train-90", "val-10"),
        "street view house numbers, cropped digits, 32x32",
        {f"svhn/{split}": (f"{split}_32x32.mat",) for split in ("train", "test", "extra")},
    ),
    "tiny-imagenet": _tiny_imagenet(
        "tiny-imagenet", ("train", "val", "train-90", "val-10"), "Tiny-ImageNet-200, resized from 64x64 to 32x32"
    ),
    "tiny-imagenet-64": _tiny_imagenet(
        "tiny-imagenet-64", ("train", "val"), "Tiny-ImageNet-200 at its own size, 64x64"
    ),
    "imagenet": Family(
        "imagenet:load_imagenet",
        _names("imagenet", "train", "val", "val-tune", "val-test"),
        "ImageNet-1K, as files; a tenth of val kept apart for tuning",
        {f"imagenet/{split}": (f"imagenet/{split}/",) for split in ("train", "val")},
    ),
    "imagenet-a": _variant("imagenet-a", "imagenet-a", "ImageNet-A: natural adversarial examples, 200 classes"),
    "imagenet-r": _variant("imagenet-r", "imagenet-r", "ImageNet-R: renditions, 200 classes"),
    "imagenet-o": _variant("imagenet-o", "imagenet-o", "ImageNet-O: out-of-distribution images for 200 classes"),
    "imagenet-v2": _variant(
        "imagenet-v2", "imagenetv2-matched-frequency-format-val", "ImageNet-V2, matched frequency: 10,000 new images"
    ),
    "imagenet-sketch": _variant("imagenet-sketch", "sketch", "ImageNet-Sketch: drawings of the 1000 classes"),
    "folder": Family("folders:load_folder", (), "folder:PATH, any tree with one folder of images per class"),
}

__all__ = ["FAMILIES", "corrupt", "from_dataset", "load", "names", "verify"]


def names() -> list[str]:
    """Every dataset name but `folder:PATH`; each that is held in memory may also be asked for as `path:NAME`."""
    return [name for family in FAMILIES.values() for name in family.names]


def check_dataset(name: str) -> Family:
    """The family of a dataset name; an unknown name is an error with the nearest match. Reads nothing."""
    if name.startswith("folder:") and name != "folder:":
        return FAMILIES["folder"]
    plain = name.removeprefix("path:")
    family = FAMILIES.get(plain.partition("/")[0])
    if family is None:
        summary = f"the families {', '.join(FAMILIES)}; see `regmixup list datasets`"
        raise unknown("dataset", name, names(), summary=summary)
    if plain not in family.names:
        # The severities of a corruption are one entry, so that the list can be read.
        entries = [n if n.count("/") < 2 else f"{n.rpartition('/')[0]}/1-5" for n in family.names]
        raise unknown("dataset", name, family.names, summary=", ".join(sorted(set(entries))) or family.description)
    return family


def part_of(name: str) -> Part | None:
    """What a name such as cifar10/train-90 is a part of; `of` is the full name. None for a dataset of its own."""
    family, _, split = name.partition("/")
    part = PARTS.get(split) if family in FAMILIES else None
    return Part(f"{family}/{part.of}", part.fractions, part.index) if part else None


def expected_files(name: str) -> tuple[str, ...]:
    """The files of a dataset under the root; none for an embedded one."""
    return check_dataset(name).files.get(whole_of(name), ())


def whole_of(name: str) -> str:
    """The dataset whose files a name needs: itself, or what it is a part or an interpolation of."""
    name = name.removeprefix("path:")
    part = part_of(name)
    return part.of if part else name


def load(name: str, *, root: str | Path | None = None) -> ImageSet | Any:
    """A dataset by name: "digits/train", "cifar10/test", "cifar10-c/fog/3", "path:cifar10/test", "folder:PATH".

    root: the folder with the official files, for datasets that are read from disk (the embedded ones need none);
    default, the environment variable REGMIXUP_DATA, or the cache folder.

    The result is an `ImageSet`, except for ImageNet's family and `folder:`, which do not fit in memory: those are
    a `FolderSet`, see `regmixup.data.folders`. Content that is known and differs is an error.
    """
    from regmixup.data.files import data_root

    check_dataset(name)
    root = data_root(root)
    if name.startswith("path:"):
        from regmixup.data.images import ImageSet
        from regmixup.data.interpolation import interpolate

        source = load(name.removeprefix("path:"), root=root)
        if not isinstance(source, ImageSet):
            raise ValueError(f"{name}: interpolations need a dataset in memory, {source.name} is one of files")
        return interpolate(source)
    if part := part_of(name):
        from regmixup.data.splits import split_indices

        whole = load(part.of, root=root)
        parts = "-".join(f"{100 * fraction:g}" for fraction in part.fractions)
        store = root / "splits" / f"{part.of.replace('/', '-')}-{parts}.json"
        index = split_indices(whole.labels, part.fractions, store=store)[part.index]
        return whole.select(index, name=name, info={"part_of": part.of, "whole": whole.fingerprint})
    dataset = read(name, root)
    if expected_files(name):
        from regmixup.data.inventory import check_known

        check_known(dataset, root)
    return dataset


def read(name: str, root: Path) -> ImageSet | Any:
    """A dataset as its files have it, not compared with what is known of it."""
    if expected_files(name):
        from regmixup.data.files import check_files

        check_files(name, root)
    module, _, function = check_dataset(name).loader.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), function)(name, root)


def verify(name: str, *, root: str | Path | None = None) -> Report:
    """Compare a dataset's content with what is known of it; see `regmixup.data.inventory.verify`."""
    from regmixup.data import inventory

    return inventory.verify(name, root)


def from_dataset(dataset: Any, name: str) -> ImageSet:
    """Any torch dataset of (image, label) pairs in memory; see `regmixup.data.images.from_dataset`."""
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
