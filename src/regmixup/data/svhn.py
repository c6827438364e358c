"""SVHN, cropped digits: `train_32x32.mat`, `test_32x32.mat` and `extra_32x32.mat`.

Each file holds `X`, uint8 (32, 32, 3, N), and `y`, (N, 1), where the digit 0 is written as 10.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from regmixup.data.catalogue import Dataset
from regmixup.data.files import is_rebuilt, rebuilt_info, wrong_file
from regmixup.data.images import ImageSet
from regmixup.data.mat5 import read_arrays

CLASSES = tuple("0123456789")


def load_svhn(dataset: Dataset, root: Path) -> ImageSet:
    """Read `svhn/train`, `svhn/test` or `svhn/extra`; the label is the digit."""
    path, count = root / dataset.files[0], dataset.images
    assert count is not None
    # A label is a number of 8 bytes; the rest is for headers.
    variables = read_arrays(path, limit=(count + 1) * (3072 + 8 + 8))
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
    return ImageSet(images, labels, CLASSES, dataset.name, rebuilt_info(path.parent))
