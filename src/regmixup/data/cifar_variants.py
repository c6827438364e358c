"""New test sets for CIFAR-10: CIFAR-10.1 (Recht et al., 2018; version 6) and CIFAR-10.2 (Lu et al., 2020).

CIFAR-10.1 is two files, `cifar10.1_v6_data.npy`, uint8 (2000, 32, 32, 3), and `cifar10.1_v6_labels.npy`; CIFAR-10.2 is
one, `cifar102_test.npz`, with the arrays `images` and `labels`. The classes are those of CIFAR-10.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from regmixup.data import expected_files
from regmixup.data.arrays import open_npy, to_images, to_labels
from regmixup.data.cifar import CIFAR10_CLASSES
from regmixup.data.files import is_rebuilt, reading, rebuilt_info, wrong_file
from regmixup.data.images import ImageSet
from regmixup.numpy_files import read_npz

IMAGES = 2000


def load_cifar10_1(name: str, root: Path) -> ImageSet:
    """`cifar10.1/test`."""
    pixels, labels = (root / file for file in expected_files(name))
    return _assemble(name, pixels, open_npy(pixels), labels, open_npy(labels))


def load_cifar10_2(name: str, root: Path) -> ImageSet:
    """`cifar10.2/test`."""
    (path,) = (root / file for file in expected_files(name))
    with reading(path, "a .npz archive"):
        arrays = read_npz(path, limit=4 * IMAGES * 3072, keys=("images", "labels"))
    return _assemble(name, path, arrays["images"], path, arrays["labels"])


def _assemble(name: str, path: Path, images: np.ndarray, labels_path: Path, labels: np.ndarray) -> ImageSet:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3):
        raise wrong_file(path, "images of type uint8 and shape (N, 32, 32, 3)", f"{images.dtype} {images.shape}")
    if len(images) != IMAGES and not is_rebuilt(path.parent):
        raise wrong_file(path, f"{IMAGES} images", len(images))
    if labels.ndim != 1:
        raise wrong_file(labels_path, f"({len(images)},) integer labels", f"{labels.dtype} {labels.shape}")
    numbers = to_labels(labels_path, labels, count=len(images), num_classes=10)
    return ImageSet(to_images(images), numbers, CIFAR10_CLASSES, name, rebuilt_info(path.parent))
