"""The datasets under a root."""

from __future__ import annotations

from pathlib import Path

import pytest

from regmixup.data.inventory import present

from .official import write_cifar, write_cifar_c, write_svhn, write_tiny_imagenet


def test_lists_what_is_there(tmp_path: Path) -> None:
    assert present(tmp_path) == {}
    with pytest.raises(ValueError, match=r"root must name a folder, got .*absent$"):
        present(tmp_path / "absent")
    write_cifar(tmp_path, "cifar10")
    write_cifar_c(tmp_path)
    write_svhn(tmp_path)
    write_tiny_imagenet(tmp_path)
    assert present(tmp_path) == dict.fromkeys(
        ("cifar10/train", "cifar10/test", "cifar10-c/fog", "svhn/test", "tiny-imagenet/val", "tiny-imagenet-64/val"),
        True,
    )
    (tmp_path / "provenance.json").unlink()
    assert [name for name, rebuilt in present(tmp_path).items() if not rebuilt] == ["svhn/test"]
