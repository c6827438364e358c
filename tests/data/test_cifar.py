"""CIFAR-10 and CIFAR-100 from files as Python 2 and Python 3 write them; CIFAR-10.1, CIFAR-10.2 and CIFAR-C."""

from __future__ import annotations

import hashlib
import os
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regmixup import data
from regmixup.data import cifar
from regmixup.data.catalogue import BENCHMARK, DATASETS, EXTRA, find
from regmixup.data.files import MissingDataError
from regmixup.data.published import Content

from .official import (
    CIFAR10,
    channel_statistics,
    planes,
    python2_batch,
    python3_batch,
    random_images,
    write_cifar,
    write_cifar10_1,
    write_cifar10_2,
    write_cifar_c,
)

EXPECTED = {
    "cifar10/train": (50_000, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar10/test": (10_000, (0.4942, 0.4851, 0.4504), (0.2467, 0.2429, 0.2616)),
    "cifar100/train": (50_000, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "cifar100/test": (10_000, (0.5088, 0.4874, 0.4419), (0.2683, 0.2574, 0.2771)),
}


@pytest.mark.parametrize("python", [2, 3])
@pytest.mark.parametrize("family", ["cifar10", "cifar100"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_reads_what_was_written(tmp_path: Path, family: str, split: str, python: int) -> None:
    images, labels = write_cifar(tmp_path, family, python=python)[split]
    dataset = data.load(f"{family}/{split}", root=tmp_path)
    np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images)
    assert dataset.images.is_contiguous()
    assert dataset.labels.tolist() == labels
    assert dataset.name == f"{family}/{split}"
    assert dataset.info == {"rebuilt": "true"}
    assert dataset.classes == (CIFAR10 if family == "cifar10" else tuple(f"class {n}" for n in range(100)))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol(tmp_path: Path, protocol: int) -> None:
    write_cifar(tmp_path, "cifar10")
    images = random_images(3, seed=1)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(python3_batch(images, [1, 2, 3], protocol=protocol))
    np.testing.assert_array_equal(data.load("cifar10/test", root=tmp_path).images.permute(0, 2, 3, 1).numpy(), images)


def test_labels_may_be_an_array_or_numpy_integers(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10")
    content = planes(random_images(3, seed=1))
    for labels in (np.array([4, 0, 9]), [np.int64(4), np.int64(0), np.uint8(9)]):
        path = tmp_path / "cifar-10-batches-py" / "test_batch"
        path.write_bytes(pickle.dumps({"labels": labels, "data": content}, protocol=2))
        assert data.load("cifar10/test", root=tmp_path).labels.tolist() == [4, 0, 9]


def _with(**changes: Any) -> dict[str, Any]:
    return {"labels": [1, 2, 3], "data": planes(random_images(3, seed=1)), **changes}


WRONG = {
    "no data": ({"labels": [1, 2, 3]}, "an entry 'data', found labels"),
    "no labels": ({"data": planes(random_images(3, seed=1))}, "an entry 'labels', found data"),
    "data as a list": (_with(data=[1, 2, 3]), r"uint8 and shape \(N, 3072\), found list"),
    "data of int64": (_with(data=np.zeros((3, 3072), np.int64)), "found int64"),
    "images of another size": (_with(data=np.zeros((3, 1024), np.uint8)), r"found uint8 \(3, 1024\)"),
    "one dimension": (_with(data=np.zeros(3072, np.uint8)), r"found uint8 \(3072,\)"),
    "a label too many": (_with(labels=[1, 2, 3, 4]), "expected 3 labels, found 4"),
    "a label out of range": (_with(labels=[1, 10, 3]), r"labels in \[0, 10\), found 10 at position 1"),
    "a negative label": (_with(labels=[1, -1, 3]), "found -1 at position 1"),
    "a huge label": (_with(labels=[1, 2**1000, 3]), "at position 1"),
    "a label that is text": (_with(labels=[1, "2", 3]), "found str at position 1"),
    "a label that is true": (_with(labels=[1, True, 3]), "found bool at position 1"),
    "labels as a number": (_with(labels=7), "a list of labels, found int"),
    "labels of two dimensions": (_with(labels=np.zeros((3, 1), np.int64)), "integer labels, found int64"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_content_names_the_file_and_the_difference(tmp_path: Path, case: str) -> None:
    write_cifar(tmp_path, "cifar10")
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    content, message = WRONG[case]
    path.write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(ValueError, match=message) as error:
        data.load("cifar10/test", root=tmp_path)
    assert str(path) in str(error.value)


def test_wrong_class_names(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(pickle.dumps({"label_names": ["a"]}, protocol=2))
    with pytest.raises(ValueError, match=r"batches.meta .* 10 names under 'label_names', found 1 values"):
        data.load("cifar10/test", root=tmp_path)


def test_official_files_must_have_the_official_number_of_images(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py" / "provenance.json").unlink()
    with pytest.raises(ValueError, match=r"data_batch_1 .* expected 10000 images, found 3"):
        data.load("cifar10/train", root=tmp_path)


def test_official_files_must_have_the_official_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The official number of images is replaced by a small one."""
    monkeypatch.setitem(DATASETS, "cifar10/test", replace(find("cifar10/test"), images=30))
    write_cifar(tmp_path, "cifar10")
    folder = tmp_path / "cifar-10-batches-py"
    (folder / "provenance.json").unlink()
    (folder / "test_batch").write_bytes(python2_batch(random_images(30, seed=3), [0] * 30))
    with pytest.raises(ValueError, match=r"test_batch .* content with SHA-256 f9b1e2130bab.*, found [0-9a-f]{64}"):
        data.load("cifar10/test", root=tmp_path)
    report = data.verify("cifar10/test", root=tmp_path)
    assert (report.status, report.expected) == ("mismatch", find("cifar10/test").content.pixels)


def test_a_tampered_batch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The official content is replaced by a small one, so that a change to one of the five files can be made."""
    write_cifar(tmp_path, "cifar10")
    folder = tmp_path / "cifar-10-batches-py"
    whole = data.load("cifar10/train", root=tmp_path)
    (folder / "provenance.json").unlink()
    parts = {
        f"cifar-10-batches-py/data_batch_{n + 1}": whole.select(torch.arange(3 * n, 3 * n + 3)).fingerprint
        for n in range(5)
    }
    labels = hashlib.sha256(bytes(whole.labels.tolist())).hexdigest()
    small = replace(find("cifar10/train"), images=15, content=Content(whole.fingerprint, labels, parts))
    monkeypatch.setitem(DATASETS, "cifar10/train", small)
    assert data.load("cifar10/train", root=tmp_path).fingerprint == whole.fingerprint
    assert data.verify("cifar10/train", root=tmp_path).status == "ok"
    assert data.verify("cifar10/val-10", root=tmp_path).status == "ok"

    content = bytearray((folder / "data_batch_4").read_bytes())
    content[content.find(b"T", 100) + 100] ^= 1
    (folder / "data_batch_4").write_bytes(content)
    with pytest.raises(ValueError, match=r"data_batch_4 .* content with SHA-256"):
        data.load("cifar10/train", root=tmp_path)
    assert data.verify("cifar10/train", root=tmp_path).detail == "cifar-10-batches-py/data_batch_4"


def test_missing_files_give_the_layout_and_the_command(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-py" / "data_batch_2").unlink()
    with pytest.raises(MissingDataError) as error:
        data.load("cifar10/train-90", root=tmp_path)
    message = str(error.value)
    assert "cifar-10-batches-py/data_batch_2  missing" in message
    assert "cifar-10-batches-py/data_batch_1  found" in message
    assert f"under {tmp_path}. " in message
    assert f"`regmixup data fetch cifar10/train --root {tmp_path}`" in message


@pytest.mark.real_data
@pytest.mark.parametrize("name", EXPECTED)
def test_real_cifar(name: str, real_root: Path) -> None:
    count, mean, std = EXPECTED[name]
    dataset = data.load(name, root=real_root)
    assert dataset.images.shape == (count, 3, 32, 32)
    assert dataset.fingerprint == find(name).content.pixels
    found_mean, found_std = channel_statistics(dataset.images)
    np.testing.assert_allclose(found_mean, mean, atol=6e-5)
    np.testing.assert_allclose(found_std, std, atol=6e-5)
    counts = dataset.labels.bincount()
    assert counts.min() == counts.max() == count // len(dataset.classes)
    assert dataset.classes == (cifar.CIFAR10_CLASSES if name.startswith("cifar10/") else cifar.CIFAR100_CLASSES)
    assert data.verify(name, root=real_root).status == "ok"


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
