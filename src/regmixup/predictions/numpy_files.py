"""Read NumPy files (.npy, .npz) from untrusted places: no pickles, and no more memory than a file may take."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy


def map_npy(path: Path) -> np.ndarray:
    """Return the array of an .npy file, mapped and not read; changes stay in memory."""
    with path.open("rb") as file:
        _check_header(file, path.stat().st_size)
    return np.load(path, mmap_mode="c", allow_pickle=False)


def _check_header(file: IO[bytes], size: int) -> None:
    """Reject an array that announces more than the `size` bytes of its file, before it takes memory."""
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError(f"an array of Python objects {shape} is never read: save it as numbers, array.astype(float)")
    announced = math.prod(shape) * dtype.itemsize
    if announced > size - file.tell():
        raise ValueError(f"an array of {dtype} {shape} takes {announced} bytes, found {size - file.tell()}")


def read_npz(path: Path, *, limit: int, keys: tuple[str, ...] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays in a .npz file, all or those under `keys`.

    limit: the most bytes that they may take together. Only what NumPy writes is decompressed: deflate, not LZMA or
    bzip2, whose headers decide how much memory the decompressor takes.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist() if keys is None else [archive.getinfo(f"{key}.npy") for key in keys]
        total = sum(member.file_size for member in members)
        if total > limit:
            raise ValueError(f"its arrays must take at most {limit} bytes, they claim {total}")
        arrays = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{name} must be stored or deflated, found compression {member.compress_type}")
            try:
                with archive.open(member) as file:
                    _check_header(file, member.file_size)
                    file.seek(0)
                    arrays[name] = npy.read_array(file, allow_pickle=False)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return arrays
