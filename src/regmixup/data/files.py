"""The files of datasets: the root they lie under, which are missing, and errors for those that are damaged."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from regmixup.data.catalogue import Dataset
from regmixup.storage import read_json

VARIABLE = "REGMIXUP_DATA"
MAX_TEXT = 1 << 25
"""Bytes of a list of images; the longest official one, of ImageNet's validation set, has less than 4 MB."""


class MissingDataError(ValueError):
    """Files of a dataset are not there."""


def data_root(root: str | Path | None = None) -> Path:
    """Return the given folder, or the environment variable REGMIXUP_DATA, or the user's cache folder for this package.

    The cache folder is `$XDG_CACHE_HOME/regmixup`, by default `~/.cache/regmixup`. Nothing is created here.

    >>> str(data_root("somewhere"))
    'somewhere'
    """
    if root is not None:
        return Path(root).expanduser()
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    return cache_folder()


def cache_folder() -> Path:
    """Return the user's cache folder for this package, or one for temporary files where there is no home directory."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # the XDG specification says that a relative path is to be ignored
        try:
            cache = Path.home() / ".cache"
        except RuntimeError:
            cache = Path(tempfile.gettempdir())
    return cache / "regmixup"


def existing_root(root: str | Path | None = None) -> Path:
    """Return `data_root`, for reading: a folder that the user named must exist."""
    found = data_root(root)
    named = "root" if root is not None else VARIABLE if os.environ.get(VARIABLE) else None
    if named and not found.is_dir():
        state = "is a file" if found.exists() else "does not exist"
        raise ValueError(f"{named} must name a folder, got {found}, which {state}")
    return found


def missing_files(dataset: Dataset, root: Path) -> list[str]:
    """Return those of a dataset's files that are not under the root; see `is_present`."""
    return [file for file in dataset.files if not is_present(root, file)]


def is_present(root: Path, file: str) -> bool:
    """Return whether a file is there or, where the name ends in /, a folder with something in it."""
    path = root / file
    return path.is_dir() and any(path.iterdir()) if file.endswith("/") else path.is_file()


def check_files(dataset: Dataset, root: Path) -> None:
    """Raise unless all files of a dataset are there."""
    missing = missing_files(dataset, root)
    if not missing:
        return
    width = max(map(len, dataset.files))
    lines = [f"  {file:{width}}  {'missing' if file in missing else 'found'}" for file in dataset.files]
    raise MissingDataError(
        f"{dataset.name} is not complete under {root}. Expected there:\n" + "\n".join(lines) + "\n"
        f"To fetch it: `regmixup data fetch {dataset.name} --root {shlex.quote(str(root))}`. "
        "If you have the files, name their folder by --root or the environment variable REGMIXUP_DATA."
    )


def file_of(package: str, name: str) -> Path:
    """Return a file of a package that we depend on, without importing it, which may take a second in every process."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"datasets need files of {package}, which is not installed")
    return Path(found.origin).parent / name


def wrong_file(path: Path, expected: object, found: object) -> ValueError:
    """Return the error for a file that is there but is not the official one."""
    return ValueError(f"{path} is damaged or not the official file: expected {expected}, found {found}")


def is_rebuilt(folder: Path) -> bool:
    """Return whether a folder's `provenance.json` says `"rebuilt": true`.

    Such a folder holds files in the official format that somebody made: corruptions generated anew, or a small subset
    for a test. Its sets may have other sizes than the official ones, and carry `info["rebuilt"] = "true"`.
    """
    path = folder / "provenance.json"
    if not path.is_file():
        return False
    provenance = read_json(path)
    return isinstance(provenance, dict) and provenance.get("rebuilt") is True


def rebuilt_info(folder: Path) -> dict[str, str]:
    """Return the entry of `ImageSet.info` for a folder."""
    return {"rebuilt": "true"} if is_rebuilt(folder) else {}


@contextmanager
def reading(path: Path | str, kind: str) -> Iterator[None]:
    """Turn whatever a library's parser raises for a damaged file into a ValueError that names the file."""
    try:
        yield
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"cannot read {path} as {kind}: {reason}") from error


def read_text(path: Path) -> str:
    """Read a text file of at most `MAX_TEXT` bytes."""
    with reading(path, "text"):
        if path.stat().st_size > MAX_TEXT:
            raise ValueError(f"expected at most {MAX_TEXT} bytes, found {path.stat().st_size}")
        return path.read_text(encoding="utf-8")
