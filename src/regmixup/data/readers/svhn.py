"""SVHN, cropped digits: `train_32x32.mat` and `test_32x32.mat`, MATLAB files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from regmixup.data.files import explaining_damage, wrong_file
from regmixup.data.images import ImageSet
from regmixup.data.records import Dataset


def load_svhn(dataset: Dataset, root: Path) -> ImageSet:
    """Read `svhn/train` or `svhn/test`; the label is the digit.

    Each file holds `X`, uint8 (32, 32, 3, N), and `y`, (N, 1), where the digit 0 is written as 10.
    """
    from scipy.io import loadmat

    path = root / dataset.files[0]
    with explaining_damage(path, "a MAT-file with X and y"):
        variables = loadmat(path, variable_names=["X", "y"])
        pixels, digits = variables["X"], variables["y"].reshape(-1)
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, len(digits)):
        expected = f"X of type uint8 and shape (32, 32, 3, {len(digits)})"
        raise wrong_file(path, expected, f"{pixels.dtype} {pixels.shape}")
    if not np.isin(digits, np.arange(1, 11)).all():
        raise wrong_file(path, "labels from 1 to 10", np.unique(digits))
    images = torch.from_numpy(np.array(pixels.transpose(3, 2, 0, 1), order="C"))
    labels = torch.from_numpy(digits.astype(np.int64) % 10)
    return ImageSet(images, labels, tuple("0123456789"), dataset.name)
