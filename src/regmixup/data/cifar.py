"""CIFAR-10 and CIFAR-100 in their python version: `cifar-10-batches-py/` and `cifar-100-python/`.

A file is a pickled dictionary: `data`, uint8 (N, 3072), the red, green and blue plane of each image one after the
other, row by row; `labels` (CIFAR-10) or `fine_labels` (CIFAR-100), a list of N integers. The names of the classes are
in a file beside it.

Memory-mapped NumPy files without pickles, and arrays as the images and labels of an `ImageSet`.

New test sets for CIFAR-10: CIFAR-10.1 (Recht et al., 2018; version 6) and CIFAR-10.2 (Lu et al., 2020).

CIFAR-10.1 is two files, `cifar10.1_v6_data.npy`, uint8 (2000, 32, 32, 3), and `cifar10.1_v6_labels.npy`; CIFAR-10.2 is
one, `cifar102_test.npz`, with the arrays `images` and `labels`. The classes are those of CIFAR-10.

CIFAR-10-C and CIFAR-100-C (Hendrycks and Dietterich, 2019): `CIFAR-10-C/<corruption>.npy` and `labels.npy`.

A corruption's file is uint8 (50000, 32, 32, 3): the test images at severity 1, then at severity 2, up to 5.
`labels.npy` repeats the test labels five times. Files are memory-mapped: asking for one severity reads a fifth of one.

A folder of corruptions that were generated anew has a `provenance.json` with `"rebuilt": true`. Its sets say so in
`info["rebuilt"]`, and may be smaller than the released ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from regmixup.data import expected_files
from regmixup.data.files import is_rebuilt, reading, rebuilt_info, wrong_file
from regmixup.data.images import ImageSet
from regmixup.data.unpickle import read_pickle
from regmixup.numpy_files import read_npz

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


@dataclass(frozen=True)
class Format:
    """What differs between the two: keys, the number of classes, images per file."""

    labels: str
    class_names: str
    num_classes: int
    images: dict[str, int]


FORMATS = {
    "cifar10": Format("labels", "label_names", 10, {"train": 10_000, "test": 10_000}),
    "cifar100": Format("fine_labels", "fine_label_names", 100, {"train": 50_000, "test": 10_000}),
}


def load_cifar(name: str, root: Path) -> ImageSet:
    """`cifar10/train`, `cifar10/test`, `cifar100/train`, `cifar100/test`."""
    family, _, split = name.partition("/")
    form = FORMATS[family]
    meta, *batches = (root / file for file in expected_files(name))
    count = None if is_rebuilt(meta.parent) else form.images[split]
    pixels, labels = [], []
    for path in batches:
        content = read_pickle(path)
        data = _entry(path, content, "data")
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
            found = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
            raise wrong_file(path, f"data of type uint8 and shape (N, {PIXELS})", found)
        if len(data) != (count or len(data)):
            raise wrong_file(path, f"{count} images", len(data))
        values = _entry(path, content, form.labels)
        if not isinstance(values, list | np.ndarray):
            raise wrong_file(path, f"a list of {form.labels}", type(values).__name__)
        pixels.append(data)
        labels.append(to_labels(path, values, count=len(data), num_classes=form.num_classes))
    images = torch.from_numpy(np.concatenate(pixels).reshape(-1, 3, 32, 32))
    return ImageSet(images, torch.cat(labels), class_names(meta, family), name, rebuilt_info(meta.parent))


def class_names(path: Path, family: str) -> tuple[str, ...]:
    """The class names in `batches.meta` or `meta`."""
    form = FORMATS[family]
    found = _entry(path, read_pickle(path), form.class_names)
    names = [n.decode("utf-8", "replace") if isinstance(n, bytes) else n for n in found] if type(found) is list else []
    if len(names) != form.num_classes or not all(isinstance(n, str) for n in names):
        raise wrong_file(path, f"{form.num_classes} names under {form.class_names!r}", f"{len(names)} values")
    return tuple(names)


def _entry(path: Path, content: dict[str, Any], key: str) -> Any:
    if key not in content:
        raise wrong_file(path, f"an entry {key!r}", ", ".join(sorted(content))[:200] or "an empty dictionary")
    return content[key]


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


BLOCK = 10_000
SEVERITIES = 5


def load_cifar_c(name: str, root: Path) -> ImageSet:
    """`cifar10-c/<corruption>/<severity>` and `cifar100-c/<corruption>/<severity>`."""
    family, _, severity = name.split("/")
    path, labels_path = (root / file for file in expected_files(name))
    images, labels = open_npy(path), open_npy(labels_path)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3) or len(images) % SEVERITIES:
        raise wrong_file(
            path, f"images of type uint8 and shape ({SEVERITIES} x N, 32, 32, 3)", f"{images.dtype} {images.shape}"
        )
    block = len(images) // SEVERITIES
    if block != BLOCK and not is_rebuilt(path.parent):
        raise wrong_file(path, f"{SEVERITIES} severities of {BLOCK} images", f"{len(images)} images")
    if labels.shape != (len(images),):
        raise wrong_file(labels_path, f"({len(images)},) integer labels", f"{labels.dtype} {labels.shape}")
    part = slice((int(severity) - 1) * block, int(severity) * block)
    classes = CIFAR10_CLASSES if family == "cifar10-c" else cifar100_classes(root)
    numbers = to_labels(labels_path, labels[part], count=block, num_classes=len(classes))
    return ImageSet(to_images(images[part]), numbers, classes, name, rebuilt_info(path.parent))


def cifar100_classes(root: Path) -> tuple[str, ...]:
    """CIFAR-100's class names: those of the copy that lies beside, or the official ones."""
    meta = root / "cifar-100-python" / "meta"
    return class_names(meta, "cifar100") if meta.is_file() else CIFAR100_CLASSES
