"""CIFAR-10 and CIFAR-100 in their python version: `cifar-10-batches-py/` and `cifar-100-python/`.

A file is a pickled dictionary: `data`, uint8 (N, 3072), the red, green and blue plane of each image one after the
other, row by row; `labels` (CIFAR-10) or `fine_labels` (CIFAR-100), a list of N integers. The names of the classes are
in a file beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regmixup.data import expected_files
from regmixup.data.arrays import to_labels
from regmixup.data.files import is_rebuilt, rebuilt_info, wrong_file
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
