"""What lies under a root, and contact sheets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from regmixup import data
from regmixup.data import inventory
from regmixup.data.inventory import CACHE, contact_sheet, present

from .official import write_cifar, write_cifar_c, write_image_folder, write_svhn, write_tiny_imagenet


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_cifar(tmp_path, "cifar10")
    write_cifar_c(tmp_path)
    write_svhn(tmp_path)
    write_tiny_imagenet(tmp_path)
    return tmp_path


def test_lists_what_is_there(root: Path) -> None:
    found = {item.name: item for item in present(root)}
    assert list(found) == [
        "cifar10/train", "cifar10/test", "cifar10-c/fog", "svhn/test", "tiny-imagenet/train", "tiny-imagenet/val",
        "tiny-imagenet-64/train", "tiny-imagenet-64/val",
    ]  # fmt: skip
    assert {name: item.images for name, item in found.items()}["cifar10/train"] == 15
    assert found["cifar10-c/fog"].images == 20
    folder = root / "cifar-10-batches-py"
    assert found["cifar10/test"].bytes == sum((folder / f).stat().st_size for f in ("batches.meta", "test_batch"))
    assert found["cifar10/test"].fingerprint == data.load("cifar10/test", root=root).fingerprint
    assert not any(item.problem for item in found.values())


def test_a_second_listing_reads_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = present(root)
    calls: list[str] = []

    def count(name: str, where: Path) -> Any:
        calls.append(name)
        return data.read(name, where)

    monkeypatch.setattr(inventory, "read", count)
    assert present(root) == first
    assert calls == []
    images, _ = write_svhn(root, count=7)
    assert {item.name: item.images for item in present(root)}["svhn/test"] == len(images)
    assert calls == ["svhn/test"]
    # The same size, but another time of change.
    batch = root / "cifar-10-batches-py" / "test_batch"
    os.utime(batch, ns=(1, 1))
    present(root)
    assert calls == ["svhn/test", "cifar10/test"]
    write_tiny_imagenet(root, per_class=3)
    present(root)
    assert calls[2:] == [
        f"{family}/{split}" for family in ("tiny-imagenet", "tiny-imagenet-64") for split in ("train", "val")
    ]


def test_without_computing(root: Path) -> None:
    assert all(item.images is None and item.bytes for item in present(root, compute=False))
    assert not (root / CACHE).exists()


def test_damaged_sets_and_caches(root: Path) -> None:
    path = root / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:300])
    broken = {item.name: item for item in present(root)}["svhn/test"]
    assert broken.images is None
    assert str(path) in broken.problem
    expected = present(root)
    for content in (
        "{",
        "[]",
        '{"svhn/test": 3}',
        (root / CACHE).read_text().replace('"present"', '"gone"'),
        (root / CACHE).read_text().replace('"images"', '"pictures"'),
    ):
        (root / CACHE).write_text(content)
        assert present(root) == expected


def test_an_empty_root(tmp_path: Path) -> None:
    assert present(tmp_path) == []
    assert present(tmp_path / "absent") == []


def test_contact_sheet(tmp_path: Path) -> None:
    write_svhn(tmp_path, count=12)
    contact_sheet(data.load("svhn/test", root=tmp_path), tmp_path / "sheets" / "svhn.png", 2, 3)
    with Image.open(tmp_path / "sheets" / "svhn.png") as image:
        assert image.format == "PNG"
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape[1] > pixels.shape[0] > 100
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1000  # the images are in it, not only labels


def test_contact_sheets_of_grey_images_small_sets_and_folders(tmp_path: Path) -> None:
    contact_sheet(data.load("digits/test"), tmp_path / "grey.png", 1, 2)
    write_image_folder(tmp_path / "set", {"a": 2, "b": 1})
    contact_sheet(data.load(f"folder:{tmp_path / 'set'}"), tmp_path / "folder.png", 2, 3)
    assert (tmp_path / "grey.png").stat().st_size > 1000
    assert (tmp_path / "folder.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="rows and columns must be >= 1, got 0 and 3"):
        contact_sheet(data.load("digits/test"), tmp_path / "x.png", 0, 3)
