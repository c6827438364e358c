"""The datasets under a root."""

from __future__ import annotations

from pathlib import Path

import pytest

from regmixup.data.inventory import present

from .official import write_cifar, write_cifar_c, write_svhn, write_tiny_imagenet


def test_lists_what_is_there(tmp_path: Path) -> None:
    assert present(tmp_path) == []
    with pytest.raises(ValueError, match=r"root must name a folder, got .*absent$"):
        present(tmp_path / "absent")
    write_cifar(tmp_path, "cifar10")
    write_cifar_c(tmp_path)
    write_svhn(tmp_path)
    write_tiny_imagenet(tmp_path)
    listed = {dataset.name: dataset for dataset in present(tmp_path)}
    assert list(listed) == [
        "cifar10/train", "cifar10/test", "cifar10-c/fog", "svhn/test", "tiny-imagenet/val", "tiny-imagenet-64/val",
    ]  # fmt: skip
    assert listed["cifar10/test"].bytes == (tmp_path / "cifar-10-batches-py" / "test_batch").stat().st_size
    tiny = tmp_path / "tiny-imagenet-200"
    files = [tiny / "wnids.txt", *(file for file in (tiny / "val").rglob("*") if file.is_file())]
    assert listed["tiny-imagenet/val"].bytes == sum(file.stat().st_size for file in files)
    assert all(dataset.rebuilt for dataset in listed.values())
    (tmp_path / "provenance.json").unlink()
    assert [dataset.name for dataset in present(tmp_path) if not dataset.rebuilt] == ["svhn/test"]
