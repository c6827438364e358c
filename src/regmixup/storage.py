"""Write files atomically, read them with checksums, and lock folders.

Every write goes to a temporary name in the same folder, is flushed to disk and then renamed, and the folder is flushed
too. So a reader, or the next run after a kill or a power cut, sees the old file or the new one and never half of one.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import socket
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regmixup.names import written_out
from regmixup.types import Row

if TYPE_CHECKING:
    from torch import Tensor

_PARTIAL = ".partial-"
"""The beginning of the names of unfinished files, which a kill can leave behind."""
_MOST_UNPACKED = 1 << 28
"""Bytes of a compressed text: a file of a stranger may be made to fill the memory."""
_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}  # fmt: skip
"""The names that safetensors has for torch's types."""
_CHECKSUM = "checksum"
_CHANGED = "its content has changed since it was written"


class InUseError(RuntimeError):
    """Another process has locked a folder."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; on success it becomes `path`, on failure it is deleted.

    A failure of the file system (a full disk, a folder that cannot be written to) is an OSError that names `path`.
    """
    _check_regular(path)
    temporary = path.parent / f"{_PARTIAL}{os.getpid()}-{path.name}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _check_regular(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(f"cannot write {path}: it is there and is not a regular file")


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the file system has a call for that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_writable(path: Path) -> None:
    """Raise now an OSError if `path` cannot be written later; nothing is left behind."""
    _check_regular(path)
    folder = next(place for place in path.absolute().parents if place.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OSError(f"cannot write {path}: {folder} is not a folder that one may write to")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, with newlines as given.

    What UTF-8 cannot encode, such as a byte in the name of a file, is written out: it must not lose all other text.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_table(path: Path, table: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Write a JSON object atomically, with a checksum that `read_table` verifies. indent: None for a compact file."""
    write_text(path, json.dumps({**table, _CHECKSUM: _table_checksum(table)}, indent=indent) + "\n")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically, with a checksum in its metadata that `load_tensors` verifies.

    Equal content gives equal bytes: safetensors' own writer puts metadata in a random order.
    """
    metadata = {**metadata, _CHECKSUM: _tensors_checksum(tensors, metadata)}
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    # Larger numbers first, so that all of them are aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    for name in names:
        begin, end = end, end + tensors[name].nbytes
        shape = list(tensors[name].shape)
        dtype = _TYPES[str(tensors[name].dtype).removeprefix("torch.")]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(_bytes_of(tensors[name]))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors, memory-mapped, and the metadata of a safetensors file.

    A checksum, as `save_tensors` writes it, is verified in one pass.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata() or {})
    checksum = metadata.pop(_CHECKSUM, "")
    if len(checksum) == 8 and checksum != _tensors_checksum(tensors, metadata):  # another program's has another length
        raise ValueError(_CHANGED)
    return tensors, metadata


def _bytes_of(tensor: Tensor) -> memoryview:
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _tensors_checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return the CRC-32 of the metadata and of the tensors' names, types, shapes and bytes."""
    checksum = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        checksum = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), checksum)
        checksum = zlib.crc32(_bytes_of(tensor), checksum)
    return f"{checksum:08x}"


def _table_checksum(content: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content).encode()):08x}"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_text(path: Path) -> str:
    """Read a text file, unpacked if it is called .gz, or PATH.gz where only that exists, as in an archived run."""
    packed = path if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")
    if path != packed and (path.exists() or not packed.is_file()):
        return path.read_bytes().decode("utf-8")
    try:
        with gzip.open(packed) as file:
            content = file.read(_MOST_UNPACKED + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{packed} is damaged ({error})") from error
    if len(content) > _MOST_UNPACKED:
        raise ValueError(f"{packed} must hold at most {_MOST_UNPACKED} bytes of text, it unpacks to more")
    return content.decode("utf-8")


def read_json(path: Path) -> Any:
    """Read JSON; ValueError that names the file if its content is damaged, OSError if it cannot be read."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error


def read_table(path: Path) -> dict[str, Any]:
    """Read a JSON object and verify its checksum, if it has one; errors as of `read_json`."""
    table = read_json(path)
    if not isinstance(table, dict):
        raise ValueError(f"{path} must hold a JSON object, found {type(table).__name__}")
    checksum = table.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _table_checksum(table):
        raise ValueError(f"cannot read {path}: {_CHANGED}")
    return table


def csv_lines(lines: Iterable[Iterable[object]]) -> str:
    """Return a table as the text of a CSV file. Floats read back bit for bit; None is empty.

    >>> csv_lines([["=cmd()", "dnn", 0.1, None]])
    "'=cmd(),dnn,0.1,\\n"
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_harmless(value) for value in line] for line in lines)
    return text.getvalue()


def _harmless(value: object) -> object:
    """Return text that a spreadsheet shows and does not compute: with a ' in front of a formula, or of another '.

    Control characters, which begin a line or command a terminal, are written out, but for the tab.
    """
    if not isinstance(value, str):
        return value
    text = written_out(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "'")) else text


def write_rows(path: Path, rows: list[Row]) -> None:
    names = [f.name for f in fields(Row)]
    write_text(path, csv_lines([names, *([getattr(row, name) for name in names] for row in rows)]))


def read_rows(path: Path, *, expected: str | None = None) -> list[Row]:
    """Read what `write_rows` wrote; ValueError names the file and the line. expected: the file's digest, if known."""
    if expected is not None and path.is_file() and digest(path) != expected:
        raise ValueError(f"cannot read rows from {path}: {_CHANGED}")
    names = [f.name for f in fields(Row)]
    kinds: dict[str, type] = {"seed": int, "severity": int, "n": int, "value": float, "low": float, "high": float}
    rows, line = [], 1
    try:
        reader = csv.reader(io.StringIO(read_text(path), newline=""))
        if next(reader, None) != names:
            raise ValueError(f"expected the columns {', '.join(names)}")
        for values in reader:
            line = reader.line_num
            texts = dict(zip(names, (value.removeprefix("'") for value in values), strict=True))  # of `_harmless`
            typed = {name: kind(texts[name]) if texts[name] else None for name, kind in kinds.items()}
            rows.append(Row(**{**texts, **typed}))  # type: ignore[arg-type]
    except (ValueError, csv.Error) as error:
        raise ValueError(f"cannot read rows from {path}, line {line}: {error}") from error
    return rows


@contextmanager
def owning(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; another process that tries gets an error. A kill releases the lock.

    A thread may own a folder twice. Entering deletes our unfinished files that a killed owner left behind in the folder
    and its subfolders, and nothing else; links are not followed.
    """
    import filelock

    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder.absolute() / ".lock", timeout=0, is_singleton=True)
    if lock.is_locked:
        yield
        return
    owner = folder / ".owner"
    try:
        lock.acquire()
    except filelock.Timeout:
        name = owner.read_text(encoding="utf-8", errors="replace") if owner.is_file() else "it left no name"
        raise InUseError(
            f"{folder} is in use by another process ({name}); wait for it to end, or choose another folder"
        ) from None
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    try:
        for leftover in folder.rglob(f"{_PARTIAL}[0-9]*-*"):
            if leftover.is_file():
                leftover.unlink(missing_ok=True)
        write_text(owner, f"pid {os.getpid()} on {socket.gethostname()} since {since}")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def is_held(folder: Path) -> bool:
    """Return whether a live process holds a folder.

    A folder without an owner's name is not touched: trying its lock could get in the way of a process that begins.
    """
    import filelock

    if not (folder / ".owner").exists():
        return False
    try:
        with filelock.FileLock(folder / ".lock", timeout=0):
            return False
    except OSError:  # also where one may only read: the owner cannot be shown to be gone
        return True
