"""Files that are either whole or absent, and folders that have one owner.

Every write goes to a temporary name in the same folder, is flushed to the disk and then renamed, so a reader (or the
next run after a kill) sees the old file or the new one and never half of one.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regmixup.types import Row

if TYPE_CHECKING:
    from torch import Tensor

_TEMPORARY = ".partial-"
_LEFTOVERS = (f"{_TEMPORARY}*", ".tmp*")
"""What a kill can leave behind: our unfinished files, and those under which safetensors writes."""


class InUseError(RuntimeError):
    """A folder has another owner."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; on success it becomes `path`, on failure it disappears.

    A failure of the file system (a full disk, a folder that cannot be written to) is an OSError that names `path`.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(f"cannot write {path}: it is there and is not a regular file")
    temporary = path.parent / f"{_TEMPORARY}{os.getpid()}-{path.name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


class _NotYetError(Exception):
    """What was to be written is not there yet."""


def check_writable(path: Path) -> None:
    """Raise now the OSError that writing `path` would raise later; nothing is left behind."""
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        with suppress(_NotYetError), replacing(path) as temporary:
            temporary.touch()
            raise _NotYetError  # so that `path` stays as it is
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, with newlines as given."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(dict(tensors), temporary, metadata=dict(metadata))
        except SafetensorError as error:
            raise OSError(str(error)) from error
        temporary.chmod(mode)  # safetensors puts a file of its own there that only the user may read


def is_stored(path: Path) -> bool:
    """Return whether a file is there, as it is or compressed."""
    return path.is_file() or path.with_name(f"{path.name}.gz").is_file()


def read_text(path: Path) -> str:
    """Read a text file, or its compressed form PATH.gz where only that is there, as in an archived run."""
    packed = path.with_name(f"{path.name}.gz")
    if path.exists() or not packed.is_file():
        return path.read_bytes().decode("utf-8")
    try:
        return gzip.decompress(packed.read_bytes()).decode("utf-8")
    except (EOFError, zlib.error) as error:
        raise OSError(f"{packed} is damaged ({error})") from error


def read_json(path: Path) -> Any:
    """Read JSON, with an error that names the file."""
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error


def read_table(path: Path) -> dict[str, Any]:
    """Read a JSON object, with an error that names the file."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, found {type(value).__name__}")
    return value


def csv_text(text: str) -> str:
    """Return text that a spreadsheet shows instead of computing: ' before what would begin a formula, or is a '.

    >>> csv_text("=cmd()"), csv_text("dnn")
    ("'=cmd()", 'dnn')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "'")) else text


def write_rows(path: Path, rows: list[Row]) -> None:
    """Rows as CSV, atomically. Floats are written so that they read back bit for bit; None is empty."""
    names = [f.name for f in fields(Row)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow(["" if v is None else csv_text(v) if isinstance(v, str) else v for v in values])
    write_text(path, text.getvalue())


def read_rows(path: Path) -> list[Row]:
    """The inverse of `write_rows`; an error names the file and the line."""
    names = [f.name for f in fields(Row)]
    kinds = {"seed": int, "severity": int, "n": int, "value": float, "low": float, "high": float}
    rows, line = [], 1
    try:
        reader = csv.reader(io.StringIO(read_text(path), newline=""))
        if next(reader, None) != names:
            raise ValueError(f"expected the columns {', '.join(names)}")
        for values in reader:
            line = reader.line_num
            if len(values) != len(names):
                raise ValueError(f"expected {len(names)} values, got {len(values)}")
            pairs = zip(names, (value.removeprefix("'") for value in values), strict=True)  # of `csv_text`
            rows.append(Row(**{k: (kinds[k](v) if v else None) if k in kinds else v for k, v in pairs}))  # type: ignore[arg-type]
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"cannot read rows from {path}, line {line}: {error}") from error
    return rows


@contextmanager
def owning(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; another live process that asks gets an error. A kill releases it.

    Entering also clears temporary files that a killed owner left behind, here and one folder down.
    """
    import filelock

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"cannot write to {folder}: {error.strerror or error}; choose another --runs folder") from error
    owner = folder / ".owner"
    lock = filelock.FileLock(folder / ".lock", timeout=0, is_singleton=True)
    if lock.is_locked:  # by this process, further out
        yield
        return
    try:
        lock.acquire()
    except filelock.Timeout:
        pid = "unknown"
        with suppress(OSError):  # the owner may leave at this moment
            pid = owner.read_text()
        raise InUseError(
            f"{folder} is in use by another process (pid {pid}); wait for it to end, or choose another --runs folder"
        ) from None
    try:
        for pattern in _LEFTOVERS:
            for leftover in (*folder.glob(pattern), *folder.glob(f"*/{pattern}")):
                leftover.unlink(missing_ok=True)
        write_text(owner, str(os.getpid()))
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def is_owned(folder: Path) -> bool:
    """Whether a process says that it holds the folder. One that was killed says so until the next owner comes."""
    return (folder / ".owner").exists()
