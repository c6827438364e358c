"""Small datasets written in the official formats, and Python 2 pickles assembled instruction by instruction."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.io import savemat

from regmixup.data.decode import EvalTransform, open_rgb
from regmixup.data.images import FolderSet, ImageSet


def mark_rebuilt(folder: Path) -> None:
    """Declare a folder's files to be made rather than official, so that they may be few."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "provenance.json").write_text(json.dumps({"rebuilt": True}))


def decode(folder_set: FolderSet, *, resize: int = 256, crop: int = 224) -> ImageSet:
    """All images in memory, as they are evaluated."""
    transform = EvalTransform(size=crop, resize=resize).build()
    (whole,) = folder_set.parts(lambda path: transform(open_rgb(path)), size=len(folder_set))
    return whole


def random_images(count: int, seed: int, side: int = 32) -> np.ndarray:
    """uint8 (N, side, side, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def planes(images: np.ndarray) -> np.ndarray:
    """(N, 32, 32, 3) -> (N, 3072): the red plane, then green, then blue, each row by row."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), 3072)


def put(index: int) -> bytes:
    return b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)


def string(text: str | bytes) -> bytes:
    """A Python 2 string: SHORT_BINSTRING or BINSTRING."""
    data = text.encode() if isinstance(text, str) else text
    return b"U" + bytes([len(data)]) + data if len(data) < 256 else b"T" + struct.pack("<i", len(data)) + data


def integer(value: int) -> bytes:
    """BININT1, BININT2 or BININT."""
    if 0 <= value < 256:
        return b"K" + bytes([value])
    return b"M" + struct.pack("<H", value) if 0 <= value < 65536 else b"J" + struct.pack("<i", value)


def python2_array(array: np.ndarray, memo: int) -> bytes:
    """What Python 2 with NumPy 1 writes for a two-dimensional uint8 array."""
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n" + put(memo) + b"cnumpy\nndarray\n" + put(memo + 1)
        + integer(0) + b"\x85" + string("b") + b"\x87" + put(memo + 2) + b"R" + put(memo + 3)
        + b"(" + integer(1) + integer(array.shape[0]) + integer(array.shape[1]) + b"\x86" + put(memo + 4)
        + b"cnumpy\ndtype\n" + put(memo + 5) + string("u1") + integer(0) + integer(1) + b"\x87" + put(memo + 6)
        + b"R" + put(memo + 7) + b"(" + integer(3) + string("|") + b"NNN" + integer(-1) + integer(-1) + integer(0)
        + b"t" + b"b" + b"\x89" + string(array.tobytes()) + put(memo + 8) + b"t" + b"b"
    )  # fmt: skip


def python2_list(values: list[bytes], memo: int) -> bytes:
    return b"]" + put(memo) + b"(" + b"".join(values) + b"e"


def python2_batch(images: np.ndarray, labels: list[int], key: str = "labels") -> bytes:
    """A CIFAR batch as the official archive has it: protocol 2, byte strings, an array of NumPy 1, file names."""
    names = [string(f"image_{i:06d}.png") + put(300 + i) for i in range(len(images))]
    return (
        b"\x80\x02}" + put(1) + b"("
        + string("batch_label") + put(2) + string("testing batch 1 of 1") + put(3)
        + string(key) + put(4) + python2_list([integer(label) for label in labels], 5)
        + string("data") + put(6) + python2_array(planes(images), 7)
        + string("filenames") + put(20) + python2_list(names, 21)
        + b"u."
    )  # fmt: skip


def python3_batch(images: np.ndarray, labels: list[int], key: str = "labels", protocol: int = 2) -> bytes:
    """The same dictionary, as this Python and this NumPy write it."""
    return pickle.dumps({key: labels, "data": planes(images)}, protocol=protocol)


def write_cifar(
    root: Path, family: str, *, per_file: int = 3, python: int = 2
) -> dict[str, tuple[np.ndarray, list[int]]]:
    """A small CIFAR-10 or CIFAR-100; returns {split: (images, labels)}."""
    if family == "cifar10":
        folder, key, num_classes = root / "cifar-10-batches-py", "labels", 10
        files = {"train": [f"data_batch_{n}" for n in range(1, 6)], "test": ["test_batch"]}
    else:
        folder, key, num_classes = root / "cifar-100-python", "fine_labels", 100
        files = {"train": ["train"], "test": ["test"]}
    mark_rebuilt(folder)
    write = python2_batch if python == 2 else python3_batch
    result = {}
    for split, names in files.items():
        images = random_images(per_file * len(names), seed=len(names))
        labels = [(7 * i + 3) % num_classes for i in range(len(images))]
        for n, name in enumerate(names):
            part = slice(n * per_file, (n + 1) * per_file)
            (folder / name).write_bytes(write(images[part], labels[part], key))
        result[split] = (images, labels)
    return result


def write_svhn(root: Path, split: str = "test", *, count: int = 6) -> tuple[np.ndarray, list[int]]:
    """A small SVHN file; the digit 0 is written as 10."""
    mark_rebuilt(root)
    images, digits = random_images(count, seed=5), [i % 10 for i in range(count)]
    y = np.array([[10.0 if d == 0 else float(d)] for d in digits])
    savemat(root / f"{split}_32x32.mat", {"X": images.transpose(1, 2, 3, 0), "y": y}, do_compression=True)
    return images, digits


def write_cifar_c(root: Path, folder: str = "CIFAR-10-C", corruption: str = "fog", *, block: int = 4) -> Any:
    """One corruption at five severities; returns (images, labels), both five blocks long."""
    mark_rebuilt(root / folder)
    images = random_images(5 * block, seed=9)
    labels = np.tile(np.arange(block) % 10, 5)
    np.save(root / folder / f"{corruption}.npy", images)
    np.save(root / folder / "labels.npy", labels)
    return images, labels


def write_cifar10_1(root: Path, *, count: int = 5) -> tuple[np.ndarray, np.ndarray]:
    mark_rebuilt(root)
    images, labels = random_images(count, seed=11), (np.arange(count) % 10).astype(np.int32)
    np.save(root / "cifar10.1_v6_data.npy", images)
    np.save(root / "cifar10.1_v6_labels.npy", labels)
    return images, labels


def write_cifar10_2(root: Path, *, count: int = 5) -> tuple[np.ndarray, np.ndarray]:
    mark_rebuilt(root)
    images, labels = random_images(count, seed=12), np.arange(count) % 10
    np.savez(root / "cifar102_test.npz", images=images, labels=labels)
    return images, labels


def write_image(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, format="JPEG" if path.suffix.lower() in (".jpeg", ".jpg") else None, quality=95)


def smooth_image(seed: int, height: int = 64, width: int = 64) -> np.ndarray:
    """A colour gradient: unlike noise, it survives JPEG."""
    generator = np.random.default_rng(seed)
    corners = generator.integers(0, 256, (2, 2, 3)).astype(np.float64)
    v, u = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[None, :, None]
    mixed = (1 - v) * ((1 - u) * corners[0, 0] + u * corners[0, 1]) + v * ((1 - u) * corners[1, 0] + u * corners[1, 1])
    return mixed.astype(np.uint8)


def write_tiny_imagenet(root: Path, *, wnids: tuple[str, ...] = ("n03000000", "n01000000"), per_class: int = 2) -> None:
    """Tiny-ImageNet's validation images and their list; wnids.txt is not sorted, as in the original."""
    folder = root / "tiny-imagenet-200"
    mark_rebuilt(folder)
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    lines = []
    for number, wnid in enumerate(wnids):
        for i in range(per_class):
            file = f"val_{i * len(wnids) + number}.JPEG"
            write_image(folder / "val" / "images" / file, smooth_image(100 + 10 * number + i))
            lines.append(f"{file}\t{wnid}\t0\t0\t63\t63")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")


def write_image_folder(folder: Path, classes: dict[str, int], *, suffix: str = ".JPEG") -> None:
    """`classes[name]` images of assorted sizes in each class folder."""
    number = 0
    for name, count in classes.items():
        for i in range(count):
            number += 1
            pixels = smooth_image(number, 40 + 7 * (number % 3), 40 + 11 * (number % 4))
            write_image(folder / name / f"{name}_{i}{suffix}", pixels)
