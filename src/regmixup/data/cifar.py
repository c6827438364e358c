"""CIFAR-10 and CIFAR-100, their corrupted test sets, and the new test sets for CIFAR-10.

CIFAR-10 and CIFAR-100 in their python version: `cifar-10-batches-py/` and `cifar-100-python/`. A file is a pickled
    dictionary: `data`, uint8 (N, 3072), the red, green and blue plane of each image one after the other, row by row;
    `labels` (CIFAR-10) or `fine_labels` (CIFAR-100), a list of N integers. A file beside it has the class names.
CIFAR-10-C and CIFAR-100-C (Hendrycks and Dietterich, 2019): `CIFAR-10-C/<corruption>.npy` is uint8 (50000, 32, 32, 3),
    the test images at severity 1, then at severity 2, up to 5; `labels.npy` repeats the test labels five times. Files
    are memory-mapped: loading one severity reads a fifth of one.
CIFAR-10.1 (Recht et al., 2018; version 6): `cifar10.1_v6_data.npy`, uint8 (2000, 32, 32, 3), and its labels.
CIFAR-10.2 (Lu et al., 2020): `cifar102_test.npz`, with the arrays `images` and `labels`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regmixup.data.catalogue import SEVERITIES, Dataset
from regmixup.data.files import is_rebuilt, reading, rebuilt_info, wrong_file
from regmixup.data.images import ImageSet
from regmixup.data.unpickle import read_pickle

PIXELS = 3 * 32 * 32
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip
"""The official names, for CIFAR-100-C without a copy of CIFAR-100 beside it."""


def load_cifar(dataset: Dataset, root: Path) -> ImageSet:
    """Read `cifar10/train`, `cifar10/test`, `cifar100/train` or `cifar100/test`."""
    meta, *batches = (root / file for file in dataset.files)
    assert dataset.images is not None
    count = None if is_rebuilt(meta.parent) else dataset.images // len(batches)
    classes, key = class_names(meta, dataset.family), "labels" if dataset.family == "cifar10" else "fine_labels"
    pixels, labels = [], []
    for path in batches:
        content = read_pickle(path)
        data = _entry(path, content, "data")
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (PIXELS,):
            found = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
            raise wrong_file(path, f"data of type uint8 and shape (N, {PIXELS})", found)
        if len(data) != (count or len(data)):
            raise wrong_file(path, f"{count} images", len(data))
        values = _entry(path, content, key)
        if not isinstance(values, list | np.ndarray):
            raise wrong_file(path, f"a list of {key}", type(values).__name__)
        pixels.append(data)
        labels.append(_to_labels(path, values, count=len(data), num_classes=len(classes)))
    images = torch.from_numpy(np.concatenate(pixels).reshape(-1, 3, 32, 32))
    return ImageSet(images, torch.cat(labels), classes, dataset.name, rebuilt_info(meta.parent))


def class_names(path: Path, family: str) -> tuple[str, ...]:
    """Read the class names in `batches.meta` or `meta`."""
    key, count = ("label_names", 10) if family == "cifar10" else ("fine_label_names", 100)
    found = _entry(path, read_pickle(path), key)
    names = [n.decode("utf-8", "replace") if isinstance(n, bytes) else n for n in found] if type(found) is list else []
    if len(names) != count or not all(isinstance(n, str) for n in names):
        raise wrong_file(path, f"{count} names under {key!r}", f"{len(names)} values")
    return tuple(names)


def _entry(path: Path, content: dict[str, Any], key: str) -> Any:
    if key not in content:
        raise wrong_file(path, f"an entry {key!r}", ", ".join(sorted(content))[:200] or "an empty dictionary")
    return content[key]


def load_cifar_c(dataset: Dataset, root: Path) -> ImageSet:
    """Read one corruption at one severity: `cifar10-c/fog/3`."""
    path, labels_path = (root / file for file in dataset.files)
    images, labels = _open_npy(path), _open_npy(labels_path)
    levels = len(SEVERITIES)
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3) or len(images) % levels:
        shape = f"{images.dtype} {images.shape}"
        raise wrong_file(path, f"images of type uint8 and shape ({levels} x N, 32, 32, 3)", shape)
    block = len(images) // levels
    if block != dataset.images and not is_rebuilt(path.parent):
        raise wrong_file(path, f"{levels} severities of {dataset.images} images", f"{len(images)} images")
    if labels.shape != (len(images),):
        raise wrong_file(labels_path, f"({len(images)},) integer labels", f"{labels.dtype} {labels.shape}")
    part = slice((dataset.severity - 1) * block, dataset.severity * block)
    classes: tuple[str, ...] = CIFAR10_CLASSES
    if dataset.benchmark == "cifar100":
        meta = root / "cifar-100-python" / "meta"
        classes = class_names(meta, "cifar100") if meta.is_file() else CIFAR100_CLASSES
    numbers = _to_labels(labels_path, labels[part], count=block, num_classes=len(classes))
    return ImageSet(_to_images(images[part]), numbers, classes, dataset.name, rebuilt_info(path.parent))


def load_new_test_set(dataset: Dataset, root: Path) -> ImageSet:
    """Read `cifar10.1/test`, from a file of images and one of labels, or `cifar10.2/test`, from an archive of both."""
    path, labels_path = root / dataset.files[0], root / dataset.files[-1]
    if path.suffix == ".npz":
        assert dataset.images is not None
        with reading(path, "a .npz archive"), np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    else:
        images, labels = _open_npy(path), _open_npy(labels_path)
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3):
        raise wrong_file(path, "images of type uint8 and shape (N, 32, 32, 3)", f"{images.dtype} {images.shape}")
    if len(images) != dataset.images and not is_rebuilt(path.parent):
        raise wrong_file(path, f"{dataset.images} images", len(images))
    numbers = _to_labels(labels_path, labels, count=len(images), num_classes=10)
    return ImageSet(_to_images(images), numbers, CIFAR10_CLASSES, dataset.name, rebuilt_info(path.parent))


def _open_npy(path: Path) -> np.ndarray:
    """Memory-map the array in a .npy file; only its header is read. Pickles are refused."""
    with reading(path, "a .npy array"):
        return np.load(path, mmap_mode="c", allow_pickle=False)


def _to_images(array: np.ndarray) -> Tensor:
    """Copy uint8 (N, H, W, C) to a tensor (N, C, H, W)."""
    return torch.from_numpy(np.array(array.transpose(0, 3, 1, 2), order="C"))


def _to_labels(path: Path, values: Any, *, count: int, num_classes: int) -> Tensor:
    """Check a list or array of labels from a file, and return (N,) int64; an error says what is wrong with which."""
    is_array = isinstance(values, np.ndarray)
    if is_array and (values.dtype.kind not in "iu" or values.ndim != 1):
        raise wrong_file(path, f"({count},) integer labels", f"{values.dtype} {values.shape}")
    if len(values) != count:
        raise wrong_file(path, f"{count} labels", len(values))
    values = values.tolist() if is_array else values
    for index, value in enumerate(values):
        if type(value) is not int or not 0 <= value < num_classes:
            found = value if type(value) is int else type(value).__name__
            raise wrong_file(path, f"labels in [0, {num_classes})", f"{found} at position {index}")
    return torch.tensor(values, dtype=torch.int64)
