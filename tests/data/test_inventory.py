"""What lies under a root, and contact sheets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regmixup import data
from regmixup.data.inventory import contact_sheet, present

from .official import write_cifar, write_cifar_c, write_image_folder, write_svhn, write_tiny_imagenet


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_cifar(tmp_path, "cifar10")
    write_cifar_c(tmp_path)
    write_svhn(tmp_path)
    write_tiny_imagenet(tmp_path)
    return tmp_path


def test_lists_what_is_there(root: Path) -> None:
    listed = {dataset.name: dataset for dataset in present(root)}
    assert list(listed) == [
        "cifar10/train", "cifar10/test", "cifar10-c/fog", "svhn/test", "tiny-imagenet/train", "tiny-imagenet/val",
        "tiny-imagenet-64/train", "tiny-imagenet-64/val",
    ]  # fmt: skip
    folder = root / "cifar-10-batches-py"
    assert listed["cifar10/test"].bytes == sum((folder / f).stat().st_size for f in ("batches.meta", "test_batch"))
    train = root / "tiny-imagenet-200" / "train"
    images = sum(file.stat().st_size for file in train.rglob("*.JPEG"))
    assert listed["tiny-imagenet/train"].bytes == images + (root / "tiny-imagenet-200" / "wnids.txt").stat().st_size
    assert all(dataset.rebuilt for dataset in listed.values())
    (root / "provenance.json").unlink()
    assert [dataset.name for dataset in present(root) if not dataset.rebuilt] == ["svhn/test"]


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
