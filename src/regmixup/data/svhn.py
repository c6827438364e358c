"""SVHN, cropped digits: `train_32x32.mat`, `test_32x32.mat` and `extra_32x32.mat`.

Each file holds `X`, uint8 (32, 32, 3, N), and `y`, (N, 1), where the digit 0 is written as 10.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from regmixup.data import expected_files
from regmixup.data.files import is_rebuilt, rebuilt_info, wrong_file
from regmixup.data.images import ImageSet
from regmixup.data.mat5 import read_arrays

CLASSES = tuple("0123456789")
IMAGES = {"train": 73_257, "test": 26_032, "extra": 531_131}


def load_svhn(name: str, root: Path) -> ImageSet:
    """`svhn/train`, `svhn/test`, `svhn/extra`; the label is the digit."""
    (file,) = expected_files(name)
    path = root / file
    count = IMAGES[name.partition("/")[2]]
    variables = read_arrays(
        path, limit=(count + 1) * (3072 + 8 + 8)
    )  # the labels are numbers of 8 bytes, then some room
    if missing := {"X", "y"} - variables.keys():
        raise wrong_file(path, "variables X and y", f"no {' and no '.join(sorted(missing))}")
    pixels, digits = variables["X"], variables["y"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise wrong_file(path, "X of type uint8 and shape (32, 32, 3, N)", f"{pixels.dtype} {pixels.shape}")
    if pixels.shape[3] != count and not is_rebuilt(path.parent):
        raise wrong_file(path, f"{count} images", pixels.shape[3])
    if digits.size != pixels.shape[3]:
        raise wrong_file(path, f"y with {pixels.shape[3]} labels", f"{digits.size}")
    outside = ~np.isin(digits, np.arange(1, 11))
    if outside.any():
        raise wrong_file(path, "labels from 1 to 10", f"{digits[outside][0]}")
    images = torch.from_numpy(np.array(pixels.transpose(3, 2, 0, 1), order="C"))
    labels = torch.from_numpy(digits.reshape(-1).astype(np.int64) % 10)
    return ImageSet(images, labels, CLASSES, name, rebuilt_info(path.parent))
