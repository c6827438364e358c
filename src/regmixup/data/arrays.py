"""Memory-mapped NumPy files without pickles, and arrays as the images and labels of an `ImageSet`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from regmixup.data.files import reading, wrong_file


def open_npy(path: Path) -> np.ndarray:
    """The array in a .npy file, memory-mapped: nothing but its header is read."""
    with reading(path, "a .npy array"):
        return npy.open_memmap(path, mode="r")


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
