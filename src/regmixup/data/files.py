"""The files of datasets: the root they lie under, which are there, and errors for those that are damaged."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regmixup.data.catalogue import DATASETS
from regmixup.data.records import Dataset
from regmixup.storage import read_json


class MissingDataError(ValueError):
    """Files of a dataset are not there."""


def data_root(root: str | Path | None = None) -> Path:
    """Return the given folder, or the environment variable REGMIXUP_DATA, or the user's cache folder for this package.

    The cache folder is `$XDG_CACHE_HOME/regmixup`, by default `~/.cache/regmixup`. Nothing is created here.

    >>> str(data_root("somewhere"))
    'somewhere'
    """
    if root is None:
        root = os.environ.get("REGMIXUP_DATA") or cache_folder()
    return Path(root).expanduser()


def cache_folder() -> Path:
    """Return the user's cache folder for this package."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "regmixup"


def missing_files(dataset: Dataset, root: Path) -> list[str]:
    """Return those of a dataset's files that are not under the root; a folder must have something in it."""

    def is_present(file: str) -> bool:
        path = root / file
        return (path.is_dir() and any(path.iterdir())) if file.endswith("/") else path.is_file()

    return [file for file in dataset.files if not is_present(file)]


def check_files(dataset: Dataset, root: Path) -> None:
    """Raise unless all files of a dataset are there."""
    missing = missing_files(dataset, root)
    if not missing:
        return
    lines = [f"  {file}  {'missing' if file in missing else 'found'}" for file in dataset.files]
    fetch = f"To fetch it: `regmixup data fetch {dataset.name} --root {shlex.quote(str(root))}`"
    raise MissingDataError(
        f"{dataset.name} is not complete under {root}. Expected there:\n" + "\n".join(lines) + "\n"
        f"{dataset.by_hand or fetch}. "
        "If you have the files, name their folder by --root or the environment variable REGMIXUP_DATA."
    )


def file_sum(path: Path, like: str) -> str:
    """Return a file's checksum, "md5:..." or "sha256:...", of the kind with which `like` begins."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def wrong_file(path: Path, expected: object, got: object) -> ValueError:
    """Return the error for a file that is there but is not the official one."""
    return ValueError(f"{path} is damaged or not the official file: expected {expected}, found {got}")


def is_rebuilt(dataset: Dataset, root: Path) -> bool:
    """Return whether the `provenance.json` beside a dataset's files says `"rebuilt": true`.

    Such files have the official format, but somebody made them: corruptions generated anew, or a small subset for a
    test. Their sets may have other sizes than the official ones, and carry `info["rebuilt"] = "true"`.
    """
    if not dataset.files:
        return False
    folder, slash, _ = dataset.files[0].partition("/")
    path = root / (folder if slash else "") / "provenance.json"
    provenance = read_json(path) if path.is_file() else None
    return isinstance(provenance, dict) and provenance.get("rebuilt") is True


def present(root: str | Path | None = None) -> dict[str, bool]:
    """Return the names of the datasets under the root, and whether somebody rebuilt them, see `is_rebuilt`.

    A corruption of CIFAR-C is named cifar10-c/fog, without a severity. Parts such as cifar10/train-90 are not listed.
    """
    if root is not None and not Path(root).expanduser().is_dir():
        raise ValueError(f"root must name a folder, got {root}")
    root = data_root(root)
    return {
        f"{dataset.family}/{dataset.corruption or dataset.split}": is_rebuilt(dataset, root)
        for dataset in DATASETS.values()
        if dataset.files and not dataset.part and not dataset.listed and not missing_files(dataset, root)
    }


@contextmanager
def explaining_damage(path: Path | str, kind: str) -> Iterator[None]:
    """Turn whatever a library's parser raises for a damaged file into a ValueError that names the file."""
    try:
        yield
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"cannot read {path} as {kind}: {reason}") from error
