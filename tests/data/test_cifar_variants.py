"""CIFAR-10.1, CIFAR-10.2, CIFAR-10-C and CIFAR-100-C."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from regmixup import data
from regmixup.data.catalogue import BENCHMARK, EXTRA

from .official import random_images, write_cifar, write_cifar10_1, write_cifar10_2, write_cifar_c


def test_cifar10_1(tmp_path: Path) -> None:
    images, labels = write_cifar10_1(tmp_path)
    dataset = data.load("cifar10.1/test", root=tmp_path)
    np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images)
    assert dataset.labels.tolist() == labels.tolist()
    assert dataset.classes[3] == "cat"


@pytest.mark.parametrize("compressed", [True, False])
def test_cifar10_2(tmp_path: Path, compressed: bool) -> None:
    images, labels = write_cifar10_2(tmp_path, compressed=compressed)
    dataset = data.load("cifar10.2/test", root=tmp_path)
    np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images)
    assert dataset.labels.tolist() == labels.tolist()


@pytest.mark.parametrize("name", ["cifar10.1/test", "cifar10.2/test"])
def test_the_official_number_of_images(tmp_path: Path, name: str) -> None:
    write_cifar10_1(tmp_path)
    write_cifar10_2(tmp_path)
    (tmp_path / "provenance.json").unlink()
    with pytest.raises(ValueError, match="expected 2000 images, found 5"):
        data.load(name, root=tmp_path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((5, 32, 32, 3), np.float32), "found float32"),
        (np.zeros((5, 3, 32, 32), np.uint8), r"found uint8 \(5, 3, 32, 32\)"),
        (np.zeros((5, 3072), np.uint8), r"found uint8 \(5, 3072\)"),
        (np.array(5, np.uint8), r"found uint8 \(\)"),
        (np.zeros((4, 32, 32, 3), np.uint8), "expected 4 labels, found 5"),
        (np.array([{}], dtype=object), "cannot read"),
    ],
)
def test_wrong_arrays(tmp_path: Path, array: np.ndarray, message: str) -> None:
    write_cifar10_1(tmp_path)
    np.save(tmp_path / "cifar10.1_v6_data.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        data.load("cifar10.1/test", root=tmp_path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.arange(5) + 6, r"labels in \[0, 10\), found 10 at position 4"),
        (np.zeros(5), "integer labels, found float64"),
        (np.zeros((5, 1), np.int64), r"found int64 \(5, 1\)"),
        (np.array(3), r"found int64 \(\)"),
        (np.array([2**63] * 5, np.uint64), "found 9223372036854775808 at position 0"),
    ],
)
def test_wrong_labels(tmp_path: Path, labels: np.ndarray, message: str) -> None:
    write_cifar10_1(tmp_path)
    np.save(tmp_path / "cifar10.1_v6_labels.npy", labels)
    with pytest.raises(ValueError, match=rf"cifar10\.1_v6_labels\.npy.*{message}"):
        data.load("cifar10.1/test", root=tmp_path)


def test_an_archive_without_its_arrays(tmp_path: Path) -> None:
    write_cifar10_2(tmp_path)
    np.savez(tmp_path / "cifar102_test.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match=r"cifar102_test.npz as a .npz archive: .*images.npy"):
        data.load("cifar10.2/test", root=tmp_path)


def test_an_archive_that_announces_more_than_it_holds(tmp_path: Path) -> None:
    """A few hundred bytes that claim to be 12 TB: refused unread."""
    write_cifar10_2(tmp_path)
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (4000000000, 32, 32, 3), }".ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(tmp_path / "cifar102_test.npz", "w") as archive:
        archive.writestr("images.npy", content)
        archive.writestr("labels.npy", content)
    with pytest.raises(ValueError, match=r"cifar102_test.npz as .*: images: an array of uint8 .* takes 12288000000000"):
        data.load("cifar10.2/test", root=tmp_path)


def test_an_archive_that_grows_beyond_the_official_size(tmp_path: Path) -> None:
    """30 MB of zeros in 30 KB."""
    write_cifar10_2(tmp_path)
    np.savez_compressed(
        tmp_path / "cifar102_test.npz", images=np.zeros((10_000, 32, 32, 3), np.uint8), labels=np.zeros(10_000, int)
    )
    with pytest.raises(ValueError, match="arrays must take at most 24576000 bytes, they claim 30800256"):
        data.load("cifar10.2/test", root=tmp_path)


@pytest.mark.parametrize(("family", "folder"), [("cifar10-c", "CIFAR-10-C"), ("cifar100-c", "CIFAR-100-C")])
def test_severities_are_blocks(tmp_path: Path, family: str, folder: str) -> None:
    images, labels = write_cifar_c(tmp_path, folder, "fog")
    for severity in range(1, 6):
        dataset = data.load(f"{family}/fog/{severity}", root=tmp_path)
        part = slice(4 * (severity - 1), 4 * severity)
        np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images[part])
        assert dataset.labels.tolist() == labels[part].tolist()
        assert dataset.info["rebuilt"] == "true"


def test_cifar100_c_has_the_class_names_of_the_cifar100_beside_it_or_the_official_ones(tmp_path: Path) -> None:
    write_cifar_c(tmp_path, "CIFAR-100-C", "snow")
    official = data.load("cifar100-c/snow/1", root=tmp_path).classes
    assert (len(set(official)), official[5], list(official)) == (100, "bed", sorted(official))
    write_cifar(tmp_path, "cifar100")
    assert data.load("cifar100-c/snow/1", root=tmp_path).classes[5] == "class 5"


def test_released_files_are_not_marked_and_have_the_released_size(tmp_path: Path) -> None:
    write_cifar_c(tmp_path, block=4)
    folder = tmp_path / "CIFAR-10-C"
    (folder / "provenance.json").write_text('{"rebuilt": false}')
    with pytest.raises(ValueError, match=r"fog.npy .* expected 5 severities of 10000 images, found 20 images"):
        data.load("cifar10-c/fog/1", root=tmp_path)
    # A sparse file: only the block that is asked for is ever read.
    np.lib.format.open_memmap(folder / "fog.npy", mode="w+", dtype=np.uint8, shape=(50_000, 32, 32, 3))[40_000] = 7
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % 10, 5))
    dataset = data.load("cifar10-c/fog/5", root=tmp_path)
    assert dataset.info == {}
    assert len(dataset) == 10_000
    assert int(dataset.images[0].min()) == 7
    assert data.verify("cifar10-c/fog/5", root=tmp_path).status == "mismatch"


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe\x00\x01", b"[" * 200_000], ids=["cut", "binary", "nested deeply"])
def test_provenance_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    write_cifar_c(tmp_path)
    (tmp_path / "CIFAR-10-C" / "provenance.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read .*provenance.json"):
        data.load("cifar10-c/fog/1", root=tmp_path)


def test_a_pipe_is_no_provenance(tmp_path: Path) -> None:
    write_cifar_c(tmp_path)
    (tmp_path / "CIFAR-10-C" / "provenance.json").unlink()
    os.mkfifo(tmp_path / "CIFAR-10-C" / "provenance.json")
    with pytest.raises(ValueError, match="expected 5 severities of 10000 images"):
        data.load("cifar10-c/fog/1", root=tmp_path)


def test_a_number_of_images_that_is_no_multiple_of_five(tmp_path: Path) -> None:
    write_cifar_c(tmp_path)
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", random_images(19, seed=0))
    with pytest.raises(ValueError, match=r"shape \(5 x N, 32, 32, 3\), found uint8 \(19, 32, 32, 3\)"):
        data.load("cifar10-c/fog/1", root=tmp_path)


def test_the_catalogue_has_all_corruptions() -> None:
    assert (len(BENCHMARK), len(EXTRA)) == (15, 4)
    for family in ("cifar10-c", "cifar100-c"):
        assert len(data.FAMILIES[family].names) == 95
    with pytest.raises(ValueError, match="did you mean 'cifar10-c/fog/1'"):
        data.load("cifar10-c/fogg/1")
    with pytest.raises(ValueError, match="unknown dataset"):
        data.load("cifar10-c/fog/6")
