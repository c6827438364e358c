"""Damaged files, over our readers: each is refused with a ValueError or read as a valid dataset, and nothing else.

Every reader meets a small, fixed sample; `make soak` runs the whole campaign.
"""

import random
import shutil
import time

import pytest
import torch

from regmixup import data
from regmixup.data.images import FolderSet

from .official import (
    decode,
    smooth_image,
    write_cifar,
    write_cifar10_1,
    write_cifar10_2,
    write_cifar_c,
    write_image,
    write_tiny_imagenet,
)

PICTURES = ("jpg", "png", "bmp", "webp", "ppm", "tif", "gif")


def mutations(content, count, rng):
    """Cut the file, flip bits, or overwrite a stretch; half of the changes lie near the beginning."""
    for _ in range(count):
        changed = bytearray(content)
        start = rng.randrange(len(content) if rng.random() < 0.5 else min(len(content), 300))
        stop = min(len(content), start + rng.choice((1, 2, 4, 8, 64)))
        kind = rng.choice(("cut", "flip", "overwrite"))
        if kind == "cut":
            del changed[start:]
        elif kind == "flip":
            changed[start] ^= 1 << rng.randrange(8)
        else:
            changed[start:stop] = rng.randbytes(stop - start)
        yield bytes(changed)


def python3_cifar(root):
    write_cifar(root, "cifar10", per_file=2, python=3)


def write_pictures(root):
    for suffix in PICTURES:
        write_image(root / "pictures" / "a" / f"{suffix}.{suffix}", smooth_image(3, 24, 20))


# What is written, what is loaded, which file is damaged, and how often in the whole campaign.
CASES = [
    (lambda root: write_cifar(root, "cifar10", per_file=2), "cifar10/test", "cifar-10-batches-py/test_batch", 250),
    (python3_cifar, "cifar10/test", "cifar-10-batches-py/test_batch", 150),
    (lambda root: write_cifar(root, "cifar100", per_file=2), "cifar100/test", "cifar-100-python/test", 100),
    (lambda root: write_cifar10_1(root, count=2), "cifar10.1/test", "cifar10.1_v6_data.npy", 100),
    (lambda root: write_cifar10_1(root, count=40), "cifar10.1/test", "cifar10.1_v6_labels.npy", 100),
    (lambda root: write_cifar10_2(root, count=2), "cifar10.2/test", "cifar102_test.npz", 150),
    (lambda root: write_cifar_c(root, block=1), "cifar10-c/fog/2", "CIFAR-10-C/fog.npy", 100),
    (lambda root: write_cifar_c(root, block=8), "cifar10-c/fog/2", "CIFAR-10-C/labels.npy", 100),
    (write_tiny_imagenet, "tiny-imagenet/val", "tiny-imagenet-200/val/images/val_1.JPEG", 150),
    (write_tiny_imagenet, "tiny-imagenet/val", "tiny-imagenet-200/val/val_annotations.txt", 60),
    (write_tiny_imagenet, "tiny-imagenet/val", "tiny-imagenet-200/wnids.txt", 30),
    *((write_pictures, "folder:pictures", f"pictures/a/{s}.{s}", 80) for s in PICTURES),
]


@pytest.mark.filterwarnings("ignore")  # Pillow and NumPy also warn about what they then read or refuse
@pytest.mark.parametrize("share", [10, pytest.param(1, marks=pytest.mark.soak)], ids=["sample", "all"])
@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{name}:{file}" for _, name, file, _ in CASES])
def test_damaged_files_are_refused_or_read(case, share, tmp_path):
    write, name, file, count = CASES[case]
    count = max(10, count // share)
    write(tmp_path)
    path = tmp_path / file
    content = path.read_bytes()
    before = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    read = load(name, tmp_path)
    refused = 0
    for changed in mutations(content, count, random.Random(case)):
        path.write_bytes(changed)
        started = time.process_time()
        try:
            images = load(name, tmp_path)
        except ValueError:
            refused += 1
        else:
            assert images.images.dtype == torch.uint8
            assert images.images.shape[1:] == read.images.shape[1:]
            assert len(images.images) == len(images.labels)
        assert time.process_time() - started < 10
    assert refused or path.suffix in (".JPEG", ".bmp", ".ppm", ".gif", ".txt")
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == before
    path.write_bytes(content)
    assert load(name, tmp_path).fingerprint == read.fingerprint
    shutil.rmtree(tmp_path)


def load(name, root):
    found = data.load(name, root=root)
    return decode(found, resize=24, crop=16) if isinstance(found, FolderSet) else found
