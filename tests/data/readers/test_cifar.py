"""CIFAR-10 and CIFAR-100 from files as Python 2 and Python 3 write them; CIFAR-10.1, CIFAR-10.2 and CIFAR-C."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regmixup import data
from regmixup.data.catalogue import BENCHMARK, DATASETS, find
from regmixup.data.readers.cifar import CLASSES
from regmixup.data.reading import content_of
from regmixup.data.roles import role_of
from regmixup.data.splits import generator_for
from tests.data.official import (
    planes,
    python3_batch,
    random_images,
    write_cifar,
    write_cifar10_1,
    write_cifar10_2,
    write_cifar_c,
)


@pytest.mark.parametrize(
    ("family", "split", "python"),
    [("cifar10", "train", 2), ("cifar10", "test", 3), ("cifar100", "train", 3), ("cifar100", "test", 2)],
)
def test_reads_what_was_written(tmp_path: Path, family: str, split: str, python: int) -> None:
    images, labels = write_cifar(tmp_path, family, python=python)[split]
    dataset = data.load(f"{family}/{split}", root=tmp_path)
    np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images)
    assert dataset.images.is_contiguous()
    assert dataset.labels.tolist() == labels
    assert dataset.name == f"{family}/{split}"
    assert dataset.info == {"rebuilt": "true"}
    assert dataset.classes == CLASSES[family]


def _with(**changes: Any) -> dict[str, Any]:
    return {"labels": [1, 2, 3], "data": planes(random_images(3, seed=1)), **changes}


WRONG = {
    "no data": ({"labels": [1, 2, 3]}, "test_batch as a batch of CIFAR: 'data'"),
    "no labels": ({"data": planes(random_images(3, seed=1))}, "test_batch as a batch of CIFAR: 'labels'"),
    "data of int64": (_with(data=np.zeros((3, 3072), np.int64)), "images must be uint8"),
    "images of another size": (_with(data=np.zeros((3, 1024), np.uint8)), r"labels must be int64 of shape \(1,\)"),
    "a label out of range": (_with(labels=[1, 10, 3]), r"labels must lie in \[0, 10\)"),
    "a label that is text": (_with(labels=[1, "2", 3]), "test_batch as a batch of CIFAR"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_content_is_an_error(tmp_path: Path, case: str) -> None:
    write_cifar(tmp_path, "cifar10")
    content, message = WRONG[case]
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(ValueError, match=message):
        data.load("cifar10/test", root=tmp_path)


def test_official_files_must_have_the_official_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The official content is replaced by a small one, so that it can be changed."""
    images, labels = write_cifar(tmp_path, "cifar10")["train"]
    folder = tmp_path / "cifar-10-batches-py"
    (folder / "provenance.json").unlink()
    pixels, numbers = (hashlib.sha256(part).hexdigest() for part in (images.tobytes(), bytes(labels)))
    content = hashlib.sha256(f"{pixels}{numbers}".encode()).hexdigest()
    monkeypatch.setitem(DATASETS, "cifar10/train", replace(find("cifar10/train"), images=15, content=content))
    assert data.load("cifar10/train", root=tmp_path).fingerprint == pixels
    for changed in (python3_batch(images[:3], labels[9:12]), python3_batch(images[9:12], [0, 0, 0])):
        (folder / "data_batch_4").write_bytes(changed)
        with pytest.raises(ValueError, match=rf"data_batch_5 .* with the hash {content}, found"):
            data.load("cifar10/train", root=tmp_path)


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["cifar10/train", "cifar10/test", "cifar100/train", "cifar100/test"])
def test_real_cifar(name: str, real_root: Path) -> None:
    dataset = data.load(name, root=real_root)
    assert content_of(dataset) == find(name).content
    assert dataset.images.shape == (find(name).images, 3, 32, 32)


@pytest.mark.parametrize(("name", "write"), [("cifar10.1/test", write_cifar10_1), ("cifar10.2/test", write_cifar10_2)])
def test_new_test_sets(tmp_path: Path, name: str, write: Any) -> None:
    images, labels = write(tmp_path)
    dataset = data.load(name, root=tmp_path)
    np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images)
    assert dataset.labels.tolist() == labels.tolist()
    assert dataset.classes == CLASSES["cifar10"]
    (tmp_path / "provenance.json").unlink()
    with pytest.raises(ValueError, match="expected 2000 images, found 5"):
        data.load(name, root=tmp_path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((5, 32, 32, 3), np.float32), "found float32"),
        (np.zeros((5, 3, 32, 32), np.uint8), r"found uint8 \(5, 3, 32, 32\)"),
        (np.zeros((4, 32, 32, 3), np.uint8), r"labels must be int64 of shape \(4,\)"),
        (np.array([{}], dtype=object), r"cannot read .*cifar10\.1_v6_data\.npy as a \.npy array"),
    ],
)
def test_wrong_arrays_and_pickled_ones(tmp_path: Path, array: np.ndarray, message: str) -> None:
    write_cifar10_1(tmp_path)
    np.save(tmp_path / "cifar10.1_v6_data.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        data.load("cifar10.1/test", root=tmp_path)


@pytest.mark.parametrize(("family", "folder"), [("cifar10-c", "CIFAR-10-C"), ("cifar100-c", "CIFAR-100-C")])
def test_severities_are_blocks(tmp_path: Path, family: str, folder: str) -> None:
    images, labels = write_cifar_c(tmp_path, folder, "fog")
    for severity in range(1, 6):
        dataset = data.load(f"{family}/fog/{severity}", root=tmp_path)
        part = slice(4 * (severity - 1), 4 * severity)
        np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images[part])
        assert dataset.labels.tolist() == labels[part].tolist()
        assert dataset.info["rebuilt"] == "true"


def test_released_files_are_not_marked_and_have_the_released_size(tmp_path: Path) -> None:
    write_cifar_c(tmp_path, block=4)
    folder = tmp_path / "CIFAR-10-C"
    (folder / "provenance.json").write_text('{"rebuilt": false}')
    with pytest.raises(ValueError, match=r"expected 10000 images, found 4"):
        data.load("cifar10-c/fog/1", root=tmp_path)
    # A sparse file: only the block that is asked for is ever read.
    np.lib.format.open_memmap(folder / "fog.npy", mode="w+", dtype=np.uint8, shape=(50_000, 32, 32, 3))[40_000] = 7
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % 10, 5))
    dataset = data.load("cifar10-c/fog/5", root=tmp_path)
    assert dataset.info == {}
    assert len(dataset) == 10_000
    assert int(dataset.images[0].min()) == 7


def test_a_number_of_images_that_is_no_multiple_of_five(tmp_path: Path) -> None:
    write_cifar_c(tmp_path)
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", random_images(19, seed=0))
    with pytest.raises(ValueError, match="images at 5 severities, found 19 images"):
        data.load("cifar10-c/fog/1", root=tmp_path)


def test_validation_images_are_corrupted_by_what_no_test_set_has(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10", per_file=20)
    clean = data.load("cifar10/val-10", root=tmp_path)
    corrupted = data.load("cifar10-val-c/saturate/4", root=tmp_path)
    generator = generator_for(0, "cifar10-val-c/saturate/4")
    expected = data.corrupt(clean.images, "saturate", severity=4, generator=generator)
    assert torch.equal(corrupted.images, expected)
    assert not torch.equal(corrupted.images, clean.images)
    assert torch.equal(corrupted.labels, clean.labels)
    roles = [role_of("cifar10-val-c/saturate/4", f"cifar10/{split}") for split in ("train-90", "train")]
    assert roles == ["shifted", "train"]
    names = {name.split("/")[1] for name in DATASETS if name.startswith(("cifar10-val-c", "cifar100-val-c"))}
    assert names.isdisjoint(BENCHMARK)
