"""The entries of the catalogue: the record of a dataset, its part, list and sources; and the names of folders.

Importing it imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regmixup.types import Role

TRAIN, VALIDATION, TEST = ("train", "training"), ("val", "valid", "validation", "dev"), ("test", "testing", "eval")
"""Usual names of the folders of a dataset's parts, in lower case."""


@dataclass(frozen=True)
class Source:
    """One file to fetch; an archive, by its name, is unpacked under the root.

    urls: addresses, tried in turn. checksum: "md5:..." or "sha256:...".
    """

    file: str
    urls: tuple[str, ...]
    checksum: str


@dataclass(frozen=True)
class ImageList:
    """The images of dataset `of` that a file under the root lists, without those that the files `without` list."""

    of: str
    file: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class SplitPart:
    """Some pieces, by their numbers, of the stratified split of dataset `of` at `fractions`."""

    of: str
    fractions: tuple[float, ...]
    pieces: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The record of a dataset: everything known before any of its files is read.

    name: what `load` is asked for. reader: "module:function", called with this record and the root; or what the user
        has registered, see `catalogue.register`.
    role: what it is for a model of its benchmark's train set; "" for a folder, whose role only its user knows.
        See `roles.role_of` for the role in relation to a particular train set.
    benchmark: the family whose classes it shows; its own, but for shifted and near-OOD sets.
    images: how many, of a part to the nearest.
    files: paths under the root; a folder's ends in a slash. Embedded datasets have none.
    sources: what to fetch. by_hand: how to get it where that cannot be automated.
    part: for a part of a split. listed: for images of another dataset that a file lists.
    corruption, severity: for a corrupted test set; "" and 0 elsewhere.
    """

    name: str
    reader: str | Callable[..., Any]
    role: Role = ""
    benchmark: str = ""
    images: int | None = None
    files: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    by_hand: str = ""
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
    def may_change(self) -> bool:
        """Return whether the name does not fix the content: a folder's files, or what a user's function returns."""
        return self.is_folder or callable(self.reader)

    @property
    def whole(self) -> str:
        """The name of the dataset that has all its images: its own, or what it is a part, list or interpolation of."""
        if self.listed:
            return self.listed.of
        if self.part is None:
            return self.name.removeprefix("path:")
        # A part of a folder may be split once more.
        return folder_record(self.part.of).whole if self.is_folder else self.part.of


def folder_record(name: str) -> Dataset:
    """Return the record of `folder:PATH`, or of a part of one by the end of its name.

    train-P and val-Q, Q = 100 - P, are the two sides of a split; any whole percentage from 1 to 99. fold-K-of-N is one
    of N folds, without-K-of-N all others. Where a folder of that name exists, it is meant, and no part.

    >>> folder_record("folder:photos/val-20").part
    SplitPart(of='folder:photos', fractions=(0.8, 0.2), pieces=(1,))
    """
    part = None if Path(name.removeprefix("folder:")).expanduser().is_dir() else _folder_part(name)
    role: Role = ""
    if part is not None:
        role = "train" if name.rstrip("/").rpartition("/")[2].startswith(("train", "without")) else "validation"
    return Dataset(name=name, reader="folders:load_folder", benchmark="folder", role=role, part=part)


def _folder_part(name: str) -> SplitPart | None:
    """Return the part that the end of a folder's name means, or None."""
    match = re.fullmatch(r"(folder:.+?)/+(?:(train|val)-([1-9]\d?)|(fold|without)-(\d+)-of-(\d\d?))/*", name)
    if match is None:
        return None
    of, side, percent, kind, fold, count = match.groups()
    if side == "train":
        return SplitPart(of, (int(percent) / 100, (100 - int(percent)) / 100), (0,))
    if side == "val":
        return SplitPart(of, ((100 - int(percent)) / 100, int(percent) / 100), (1,))
    piece, num_folds = int(fold) - 1, int(count)
    if piece not in range(num_folds) or num_folds < 2:
        return None
    pieces = (piece,) if kind == "fold" else tuple(other for other in range(num_folds) if other != piece)
    return SplitPart(of, (1 / num_folds,) * num_folds, pieces)
