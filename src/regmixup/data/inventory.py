"""The datasets under a root, and whether their content is official."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regmixup.data.catalogue import DATASETS, find
from regmixup.data.files import MissingDataError, data_root, file_sum, is_rebuilt, missing_files
from regmixup.data.reading import load
from regmixup.data.records import Dataset


@dataclass(frozen=True)
class Present:
    """A dataset that is there; for CIFAR-C one corruption, named cifar10-c/fog, with the names of all five severities.

    bytes: of its files. rebuilt: whether somebody made them, see `files.is_rebuilt`.
    """

    name: str
    names: tuple[str, ...]
    bytes: int
    rebuilt: bool


@dataclass(frozen=True)
class Report:
    """The result of `verify`. fingerprint: of what was read. detail: what differs, or why nothing is known."""

    name: str
    status: Literal["ok", "unknown", "mismatch"]
    fingerprint: str = ""
    detail: str = ""


def present(root: str | Path | None = None) -> list[Present]:
    """Return the datasets under the root, in the catalogue's order; parts such as cifar10/train-90 are not listed."""
    if root is not None and not Path(root).expanduser().is_dir():
        raise ValueError(f"root must name a folder, got {root}")
    root = data_root(root)
    lines: dict[str, list[Dataset]] = {}
    for name, dataset in DATASETS.items():
        if dataset.files and not dataset.part and not dataset.listed and not missing_files(dataset, root):
            line = f"{dataset.family}/{dataset.corruption}" if dataset.corruption else name
            lines.setdefault(line, []).append(dataset)
    return [
        Present(line, tuple(d.name for d in datasets), _size(datasets[0], root), is_rebuilt(datasets[0], root))
        for line, datasets in lines.items()
    ]


def _size(dataset: Dataset, root: Path) -> int:
    paths = [root / file for file in dataset.files]
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def verify(name: str, root: str | Path | None = None) -> Report:
    """Read a dataset and compare it with what is known: ok, mismatch, or unknown where nothing is.

    A part, such as cifar10/train-90, is verified by the whole, and an interpolation by its source. Missing files are
    an error; damaged ones a mismatch.
    """
    root, whole = data_root(root), find(find(name).whole)
    try:
        images = load(whole.name, root=root)
    except MissingDataError:
        raise
    except ValueError as error:
        return Report(name, "mismatch", detail=str(error))
    if "rebuilt" in images.info:
        return Report(name, "unknown", images.fingerprint, "rebuilt, so it may differ from the official")
    if whole.content:
        return Report(name, "ok", images.fingerprint)
    for file, expected in whole.checksums.items():
        if (checksum := file_sum(root / file, expected)) != expected:
            return Report(name, "mismatch", images.fingerprint, f"{file}: expected {expected}, found {checksum}")
    if whole.checksums:
        return Report(name, "ok", images.fingerprint, "the files are those published")
    return Report(name, "unknown", images.fingerprint, "no checksum is known for this dataset")
