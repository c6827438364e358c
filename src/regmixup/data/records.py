"""The entries of the catalogue: the record of a dataset, its part, list and sources; and the names of folders.

Importing it imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Role = Literal["train", "validation", "test", "shifted", "ood"]
TRAIN, VALIDATION, TEST = ("train", "training"), ("val", "valid", "validation", "dev"), ("test", "testing", "eval")
"""Usual names of the folders of a dataset's parts, in lower case."""
MAX_FOLDS = 100
FOLDER_PARTS = "train-90, val-10, fold-2-of-5 or without-2-of-5"
_FOLDER_PART = re.compile(
    r"(?P<of>folder:.+?)/+(?:(?P<side>train|val)-(?P<percent>[1-9]\d?)|"
    r"(?P<fold>fold|without)-(?P<number>[1-9]\d{0,2})-of-(?P<count>[1-9]\d{0,2}))/*"
)


@dataclass(frozen=True)
class Source:
    """One file to fetch.

    urls: addresses, tried in turn. checksum: "md5:..." or "sha256:...". unpack: how it becomes files under the root.
    """

    file: str
    urls: tuple[str, ...]
    checksum: str
    unpack: Literal["tar", "zip", "no"] = "no"


@dataclass(frozen=True)
class Content:
    """SHA-256 of a dataset's pixels and labels.

    Pixels are in (N, H, W, C) order, so that `pixels` is `ImageSet.fingerprint`; labels take one byte each. Unlike a
    file's checksum, this does not depend on how the images were packed.
    """

    pixels: str
    labels: str


@dataclass(frozen=True)
class ImageList:
    """The images of dataset `of` that a file under the root lists, without those that the files `without` list."""

    of: str
    file: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class SplitPart:
    """The part of a stratified split that a dataset is: part `index` of `of`, cut at `fractions`.

    rest: whether it is all parts but that one, as the train set of a fold is.
    """

    of: str
    fractions: tuple[float, ...]
    index: int
    rest: bool = False

    @property
    def pieces(self) -> frozenset[int]:
        """The numbers of the parts that it consists of."""
        return frozenset(range(len(self.fractions))) - {self.index} if self.rest else frozenset({self.index})


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The record of a dataset: everything known before any of its files is read.

    name: what `load` is asked for. reader: "module:function", called with this record and the root; "" with a loader.
    role: what it is for a model of its benchmark's train set; None for a folder, whose role only its user knows.
        See `roles.role_of` for the role in relation to a particular train set.
    benchmark: the family whose classes it shows; its own, but for shifted and near-OOD sets.
    side: height and width of images that are held in memory; None for image files, which stay on disk.
    images, num_classes: how many; None where that is not known.
    files: paths under the root; a folder's ends in a slash. Embedded datasets have none.
    checksums: of those files for which one is published. content: hashes of the pixels and labels.
    sources: what to fetch. by_hand: how to get it where that cannot be automated. optional: whether fetching the whole
        family leaves it out.
    loader: what reads one that was registered, instead of the reader. on_disk: whether that gives a `FolderSet`.
    part: for a part of a split. listed: for images of another dataset that a file lists.
    corruption, severity: for a corrupted test set; "" and 0 elsewhere.
    """

    name: str
    reader: str = ""
    role: Role | None = None
    benchmark: str = ""
    side: int | None = None
    images: int | None = None
    num_classes: int | None = None
    files: tuple[str, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)
    content: Content | None = None
    sources: tuple[Source, ...] = ()
    by_hand: str = ""
    optional: bool = False
    loader: Callable[..., Any] | None = None
    on_disk: bool = False
    part: SplitPart | None = None
    listed: ImageList | None = None
    corruption: str = ""
    severity: int = 0

    @property
    def family(self) -> str:
        """The name before the first slash; "folder" for `folder:PATH`."""
        return "folder" if self.is_folder else self.name.removeprefix("path:").partition("/")[0]

    @property
    def split(self) -> str:
        """The name after the first slash."""
        return self.name.partition("/")[2]

    @property
    def is_folder(self) -> bool:
        return self.name.startswith("folder:")

    @property
    def is_interpolated(self) -> bool:
        return self.name.startswith("path:")

    @property
    def in_memory(self) -> bool:
        """Return whether `load` returns an `ImageSet`, rather than a `FolderSet` of image files."""
        return self.side is not None or (self.loader is not None and not self.on_disk)

    @property
    def may_change(self) -> bool:
        """Return whether the name does not fix the content: a folder's files, or what a user's function returns."""
        return self.is_folder or self.loader is not None

    @property
    def whole(self) -> str:
        """The name of the dataset whose files are read: its own, or what it is a part or an interpolation of."""
        if self.part is None:
            return self.name.removeprefix("path:")
        # A part of a folder may be split once more.
        return folder_record(self.part.of).whole if self.is_folder else self.part.of


@dataclass(frozen=True)
class Family:
    """Datasets that share the name before the first slash."""

    description: str
    datasets: tuple[Dataset, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dataset.name for dataset in self.datasets)


def folder_record(name: str) -> Dataset:
    """Return the record of `folder:PATH`, or of a part of one by the end of its name.

    train-P and val-Q, Q = 100 - P, are the two sides of a split; any whole percentage from 1 to 99. fold-K-of-N is one
    of N folds, without-K-of-N all others. Where a folder of that name exists, it is meant, and no part.

    >>> folder_record("folder:photos/val-20").part
    SplitPart(of='folder:photos', fractions=(0.8, 0.2), index=1, rest=False)
    """
    ending = _FOLDER_PART.fullmatch(name)
    part = _part(ending) if ending and not Path(name.removeprefix("folder:")).expanduser().is_dir() else None
    role: Role | None = None
    if ending and part:
        role = "train" if part.rest or ending["side"] == "train" else "validation"
    return Dataset(name=name, reader="folders:load_folder", benchmark="folder", role=role, part=part)


def _part(ending: re.Match[str]) -> SplitPart | None:
    """Return which part the end of a name means; None for a fold that there cannot be."""
    if ending["side"]:
        percent = int(ending["percent"])
        first = percent if ending["side"] == "train" else 100 - percent
        return SplitPart(ending["of"], (first / 100, (100 - first) / 100), index=int(ending["side"] == "val"))
    number, count = int(ending["number"]), int(ending["count"])
    if not (number <= count and 2 <= count <= MAX_FOLDS):
        return None
    return SplitPart(ending["of"], (1 / count,) * count, number - 1, rest=ending["fold"] == "without")


def rest_of_folder(dataset: Dataset) -> str:
    """Return the name of the other side of the split that a part of a folder is one of."""
    assert dataset.part is not None
    of, _, end = dataset.name.rstrip("/").rpartition("/")
    side, _, share = end.partition("-")
    other_side = {"train": "val", "val": "train", "fold": "without", "without": "fold"}[side]
    return f"{of}/{other_side}-{100 - int(share) if share.isdigit() else share}"
