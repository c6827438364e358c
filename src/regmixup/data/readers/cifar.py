"""CIFAR-10 and CIFAR-100, their corrupted test sets, and the new test sets for CIFAR-10.

CIFAR-10 and CIFAR-100 in their python version: `cifar-10-batches-py/` and `cifar-100-python/`. A file is a pickled
    dictionary: `data`, uint8 (N, 3072), the red, green and blue plane of each image one after the other, row by row;
    `labels` (CIFAR-10) or `fine_labels` (CIFAR-100), a list of N integers. No code in a pickle is run.
CIFAR-10-C and CIFAR-100-C (Hendrycks and Dietterich, 2019): `CIFAR-10-C/<corruption>.npy` is uint8 (50000, 32, 32, 3),
    the test images at severity 1, then at severity 2, up to 5; `labels.npy` repeats the test labels five times. Files
    are memory-mapped: loading one severity reads a fifth of one.
CIFAR-10.1 (Recht et al., 2018; version 6): `cifar10.1_v6_data.npy`, uint8 (2000, 32, 32, 3), and its labels.
CIFAR-10.2 (Lu et al., 2020): `cifar102_test.npz`, with the arrays `images` and `labels`.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regmixup.data.catalogue import SEVERITIES
from regmixup.data.files import explaining_damage, wrong_file
from regmixup.data.images import ImageSet
from regmixup.data.records import Dataset

CLASSES = {
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "cifar100": (
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
    ),
}  # fmt: skip
"""The official names by benchmark, so that no file of names is needed."""


def load_cifar(dataset: Dataset, root: Path) -> ImageSet:
    """Read `cifar10/train`, `cifar10/test`, `cifar100/train` or `cifar100/test`."""
    key = "labels" if dataset.family == "cifar10" else "fine_labels"
    pixels, labels = [], []
    for path in (root / file for file in dataset.files):
        with explaining_damage(path, "a batch of CIFAR"), path.open("rb") as file:
            batch = _Unpickler(file, encoding="latin1").load()
            pixels.append(torch.tensor(batch["data"]).view(-1, 3, 32, 32))
            labels.append(torch.tensor(batch[key], dtype=torch.int64))
    return ImageSet(torch.cat(pixels), torch.cat(labels), CLASSES[dataset.benchmark], dataset.name)


class _Unpickler(pickle._Unpickler):  # in Python: in C, a damaged number of a memo entry takes gigabytes
    """Reads plain data and arrays of uint8, of either Python and any NumPy, and refuses every other name.

    A pickle runs code only through the names that it looks up. NumPy's array class is none of them: called with a
    buffer, it would take bytes of the file for addresses of objects. A type of more than bytes could do so, too.
    """

    def find_class(self, module: str, name: str) -> Any:
        # These functions are new for each name, because a pickle may set attributes of what it looks up.
        def empty_array(*_: object) -> np.ndarray:  # the pickle then fills it
            return np.empty(0, np.uint8)

        def as_bytes(text: str, encoding: str) -> bytes:  # how Python 3 writes bytes in protocol 2
            if encoding != "latin1":
                raise ValueError(f"bytes must be written as latin1, found {encoding!r:.80}")
            return text.encode("latin1")

        def byte_type(code: str, *_: object) -> np.dtype[Any]:
            if code != "u1":
                raise ValueError(f"arrays must be uint8, found {code!r:.80}")
            return np.dtype(np.uint8)

        symbol = f"{module}.{name}".replace("._core.", ".core.")  # NumPy 2 has renamed a folder
        known = {
            "numpy.ndarray": "ndarray",  # an argument of the next
            "numpy.core.multiarray._reconstruct": empty_array,
            "numpy.dtype": byte_type,
            "_codecs.encode": as_bytes,
        }
        if symbol not in known:
            raise ValueError(f"it refers to {symbol[:80]!r}, which a batch never does")
        return known[symbol]


def load_cifar_c(dataset: Dataset, root: Path) -> ImageSet:
    """Read one corruption at one severity: `cifar10-c/fog/3`."""
    path, labels_path = (root / file for file in dataset.files)
    images, labels = _open_npy(path), _open_npy(labels_path)
    block, remainder = divmod(len(images), len(SEVERITIES))
    if remainder:
        raise wrong_file(path, "images at 5 severities", f"{len(images)} images")
    part = slice((dataset.severity - 1) * block, dataset.severity * block)
    return _from_arrays(dataset, path, images[part], labels[part])


def load_new_test_set(dataset: Dataset, root: Path) -> ImageSet:
    """Read `cifar10.1/test`, from a file of images and one of labels, or `cifar10.2/test`, from an archive of both."""
    path = root / dataset.files[0]
    if path.suffix == ".npz":
        with explaining_damage(path, "a .npz archive"), np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    else:
        images, labels = _open_npy(path), _open_npy(root / dataset.files[1])
    return _from_arrays(dataset, path, images, labels)


def _open_npy(path: Path) -> np.ndarray:
    """Memory-map the array in a .npy file; only its header is read. Pickles are refused."""
    with explaining_damage(path, "a .npy array"):
        return np.load(path, mmap_mode="c", allow_pickle=False)


def _from_arrays(dataset: Dataset, path: Path, images: np.ndarray, labels: np.ndarray) -> ImageSet:
    """Return a set of images (N, 32, 32, 3) and labels (N,)."""
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3):
        raise wrong_file(path, "images of type uint8 and shape (N, 32, 32, 3)", f"{images.dtype} {images.shape}")
    pixels = torch.from_numpy(np.array(images.transpose(0, 3, 1, 2), order="C"))
    return ImageSet(pixels, torch.from_numpy(labels.astype(np.int64)), CLASSES[dataset.benchmark], dataset.name)
