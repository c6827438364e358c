"""Datasets that stay on disk: image files in one folder per class. `folder:PATH` is any such tree."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from regmixup.data.decode import EXTENSIONS, Source, decode_all, open_rgb
from regmixup.data.images import ImageSet
from regmixup.data.transforms import EvalTransform


@dataclass(frozen=True)
class FolderSet:
    """Image files with labels, not decoded.

    paths: N paths that can be opened. labels: (N,) int64. classes: the class names, in label order.
    name: what `load` was asked for. folder: the folder that all paths begin with. info: facts about the set.
    """

    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    name: str
    folder: Path
    info: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError(f"{self.name}: {self.folder} holds no images ({', '.join(EXTENSIONS)}) in class folders")
        if self.labels.dtype != torch.int64 or self.labels.shape != (len(self.paths),):
            raise ValueError(
                f"{self.name}: labels must be int64 of shape ({len(self.paths)},), "
                f"got {self.labels.dtype} {tuple(self.labels.shape)}"
            )
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= len(self.classes):
            raise ValueError(f"{self.name}: labels must lie in [0, {len(self.classes)}), got {low} to {high}")
        outside = next((p for p in self.paths if not p.startswith(str(self.folder) + os.sep)), None)
        if outside is not None:
            raise ValueError(f"{self.name}: paths must begin with {self.folder}, got {outside}")

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the sorted lines "relative path, tab, size in bytes": found without reading a file."""
        start = len(str(self.folder)) + 1
        lines = sorted(f"{p[start:].replace(os.sep, '/')}\t{os.stat(p).st_size}" for p in self.paths)  # noqa: PTH116
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def select(self, index: Tensor, *, name: str = "", info: dict[str, str] | None = None) -> FolderSet:
        """The files at `index`, in that order."""
        paths = tuple(self.paths[i] for i in index.tolist())
        return FolderSet(
            paths, self.labels[index], self.classes, name or self.name, self.folder, {**self.info, **(info or {})}
        )


def decode(folder_set: FolderSet, *, resize: int = 256, crop: int = 224) -> ImageSet:
    """All images in memory: the shorter side resized to `resize` (bilinear, antialiased), then the centre cropped.

    For a set that does not fit, see `chunks`.
    """
    transform = EvalTransform(size=crop, resize=resize).build()
    (whole,) = chunks(folder_set, lambda path: transform(open_rgb(path)), size=len(folder_set))
    return replace(whole, info={**whole.info, "resize": str(resize), "crop": str(crop)})


def chunks(folder_set: FolderSet, read: Callable[[Source], Image.Image], *, size: int = 1000) -> Iterator[ImageSet]:
    """The images in memory, each as `read` returns it, `size` at a time, in order."""
    for start in range(0, len(folder_set), size):
        part = folder_set.select(torch.arange(start, min(start + size, len(folder_set))))
        yield ImageSet(decode_all(part.paths, read), part.labels, part.classes, part.name, part.info)


def class_folders(folder: Path) -> tuple[str, ...]:
    """The names of a folder's subfolders, sorted; hidden ones are left out."""
    with os.scandir(folder) as entries:
        return tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))


def image_files(folder: Path) -> list[str]:
    """The paths of all image files under a folder, sorted; hidden files are left out."""
    found = []
    for where, _, files in os.walk(folder):
        found += [os.path.join(where, f) for f in files if f.lower().endswith(EXTENSIONS) and not f.startswith(".")]  # noqa: PTH118
    return sorted(found)


def from_class_folders(
    name: str, folder: Path, labels: dict[str, int], classes: tuple[str, ...], info: dict[str, str]
) -> FolderSet:
    """The files of the class folders named in `labels`, folder after folder."""
    paths: list[str] = []
    numbers: list[int] = []
    for class_folder, label in labels.items():
        files = image_files(folder / class_folder)
        paths += files
        numbers += [label] * len(files)
    return FolderSet(tuple(paths), torch.tensor(numbers, dtype=torch.int64), classes, name, folder, info)


def load_folder(name: str, root: Path) -> FolderSet:
    """`folder:PATH`: every subfolder of PATH is a class, in sorted order.

    PATH is looked for from the working directory, and if there is no such folder, from the root.
    """
    path = Path(name.removeprefix("folder:")).expanduser()
    places = list(dict.fromkeys((path.absolute(), (root / path).absolute())))
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        tried = " or ".join(map(str, places))
        raise ValueError(f"{name}: expected a folder with one subfolder of images per class, found no folder {tried}")
    classes = class_folders(folder)
    if not classes:
        raise ValueError(f"{name}: expected one subfolder of images per class in {folder}, found no subfolder")
    return from_class_folders(name, folder, {c: label for label, c in enumerate(classes)}, classes, {})
