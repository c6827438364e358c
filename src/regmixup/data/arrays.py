"""NumPy files (.npy, .npz) without pickles, and arrays as the images and labels of an `ImageSet`."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from regmixup.data.files import reading, wrong_file

MAX_MEMBER_BYTES = 1 << 28


def open_npy(path: Path) -> np.ndarray:
    """The array in a .npy file, memory-mapped: nothing but its header is read."""
    with reading(path, "a .npy array"):
        return npy.open_memmap(path, mode="r")


def read_npz(path: Path, keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Some of the arrays in a .npz file. A member that claims to be larger than 256 MiB is refused unread."""
    with reading(path, "a .npz archive"), zipfile.ZipFile(path) as archive:
        members = {key: archive.getinfo(f"{key}.npy") for key in keys}
        for key, member in members.items():
            if member.file_size > MAX_MEMBER_BYTES:
                raise ValueError(f"{key} must take at most {MAX_MEMBER_BYTES} bytes, it claims {member.file_size}")
        arrays = {}
        for key, member in members.items():
            with archive.open(member) as file:
                _check_size(key, file, member.file_size)
            with archive.open(member) as file:
                arrays[key] = npy.read_array(file, allow_pickle=False)
        return arrays


def _check_size(key: str, file: Any, size: int) -> None:
    """Raise if the header announces more data than the member holds, before memory is taken for it."""
    version = npy.read_magic(file)
    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = header(file)
    count = 1
    for length in shape:
        count *= length
    if count * dtype.itemsize > size:
        raise ValueError(f"{key} announces {count * dtype.itemsize} bytes in {size}")


def to_images(array: np.ndarray) -> Tensor:
    """uint8 (N, H, W, C) -> a tensor of its own (N, C, H, W)."""
    return torch.from_numpy(np.array(array.transpose(0, 3, 1, 2), order="C"))


def to_labels(path: Path, values: Sequence[Any] | np.ndarray, *, count: int, num_classes: int) -> Tensor:
    """Labels from a file -> (N,) int64; an error names the file, and what is wrong with which label."""
    if len(values) != count:
        raise wrong_file(path, f"{count} labels", len(values))
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "iu" or values.ndim != 1:
            raise wrong_file(path, f"({count},) integer labels", f"{values.dtype} {values.shape}")
        values = values.tolist()
    for index, value in enumerate(values):
        if type(value) is not int or not 0 <= value < num_classes:
            found = value if type(value) is int else type(value).__name__
            raise wrong_file(path, f"labels in [0, {num_classes})", f"{found} at position {index}")
    return torch.tensor(values, dtype=torch.int64)
