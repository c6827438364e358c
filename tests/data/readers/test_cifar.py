"""CIFAR-10 and CIFAR-100 from files as Python 2 and Python 3 write them; CIFAR-10.1, CIFAR-10.2 and CIFAR-C."""

import hashlib
import os
import pickle
import subprocess
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from regmixup import data
from regmixup.data.catalogue import BENCHMARK, DATASETS, find
from regmixup.data.readers.cifar import CLASSES
from regmixup.data.reading import CONTENT, content_of
from regmixup.data.roles import role_of
from regmixup.data.splits import generator_for
from tests.data.official import (
    mark_rebuilt,
    planes,
    python3_batch,
    random_images,
    string,
    write_cifar,
    write_cifar10_1,
    write_cifar10_2,
    write_cifar_c,
)


@pytest.mark.parametrize(
    ("family", "split", "python"),
    [("cifar10", "train", 2), ("cifar10", "test", 3), ("cifar100", "train", 3), ("cifar100", "test", 2)],
)
def test_reads_what_was_written(tmp_path, family, split, python):
    images, labels = write_cifar(tmp_path, family, python=python)[split]
    dataset = data.load(f"{family}/{split}", root=tmp_path)
    np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images)
    assert dataset.images.is_contiguous()
    assert dataset.labels.tolist() == labels
    assert dataset.name == f"{family}/{split}"
    assert dataset.info == {"rebuilt": "true"}
    assert dataset.classes == CLASSES[family]


def _with(**changes):
    return {"labels": [1, 2, 3], "data": planes(random_images(3, seed=1)), **changes}


WRONG = {
    "no data": ({"labels": [1, 2, 3]}, "test_batch as a batch of CIFAR: 'data'"),
    "no labels": ({"data": planes(random_images(3, seed=1))}, "test_batch as a batch of CIFAR: 'labels'"),
    "data of int64": (_with(data=np.zeros((3, 3072), np.int64)), "arrays must be uint8, found 'i8'"),
    "images of another size": (_with(data=np.zeros((3, 1024), np.uint8)), r"labels must be int64 of shape \(1,\)"),
    "a label out of range": (_with(labels=[1, 10, 3]), r"labels must lie in \[0, 10\)"),
    "a label that is text": (_with(labels=[1, "2", 3]), "test_batch as a batch of CIFAR"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_content_is_an_error(tmp_path, case):
    write_cifar(tmp_path, "cifar10")
    content, message = WRONG[case]
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(ValueError, match=message):
        data.load("cifar10/test", root=tmp_path)


SENTINEL = "executed"


class Reduced:
    """An object that a pickle makes by a call."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def keyed(program):
    return b"\x80\x02}" + string("data") + program + b"s."


SHELL = string(f"touch {SENTINEL}")
NDARRAY, DTYPE = b"cnumpy\nndarray\n", b"cnumpy\ndtype\n"
EMPTY = b"cnumpy.core.multiarray\n_reconstruct\n" + NDARRAY + b"K\x00\x85" + string("b") + b"\x87R"
OBJECTS = DTYPE + string("O8") + b"K\x00K\x01\x87R"
HOSTILE = {
    "GLOBAL": b"\x80\x02cposix\nsystem\n(" + SHELL + b"tR.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x05posix\x8c\x06system\x93(" + SHELL + b"tR.",
    "INST": b"(" + SHELL + b"iposix\nsystem\n.",
    "OBJ": b"(cposix\nsystem\n" + SHELL + b"o.",
    "NEWOBJ": b"cposix\nsystem\n" + SHELL + b"\x85\x81.",
    "exec": keyed(b"cbuiltins\nexec\n" + string(f"open('{SENTINEL}','w')") + b"\x85R"),
    "getattr": keyed(b"cbuiltins\ngetattr\n" + NDARRAY + string("tofile") + b"\x86R"),
    "numpy.load": keyed(b"cnumpy\nload\n" + SHELL + b"\x85R"),
    "a dotted name": keyed(b"cnumpy\nndarray.tofile\n" + SHELL + b"\x85R"),
    "os.system": pickle.dumps({"data": Reduced(os.system, f"touch {SENTINEL}")}),
    "Popen": pickle.dumps({"data": Reduced(subprocess.Popen, ["touch", SENTINEL])}, protocol=2),
    "eval": pickle.dumps({"data": Reduced(eval, f"open('{SENTINEL}','w')")}, protocol=5),
    "EXT1": keyed(b"\x82\x01"),
    "PERSID": keyed(b"Pabc\n"),
    "attributes of a name": keyed(NDARRAY + b"}" + string("x") + b"K\x01sb"),
    "attributes of a codec": keyed(b"c_codecs\nencode\n}" + string("x") + b"K\x01sb"),
    "a call of a result": keyed(EMPTY + b")R"),
    "an array never filled": keyed(EMPTY),
    "an array of objects": keyed(EMPTY + b"(K\x01K\x01\x85" + OBJECTS + b"\x89" + string("abcdefgh") + b"tb"),
    "a buffer of addresses": keyed(
        NDARRAY + b"(K\x01\x85" + string("O") + string("abcdefgh") + b"tR" + string("labels") + b"K\x01s"
    ),
    "a type of addresses": keyed(DTYPE + string("V8") + b"K\x00K\x01\x87R(K\x03" + string("|") + b"NNNK\x08K\x01K?tb"),
    "no dictionary": b"\x80\x02].",
    "no end": b"\x80\x02}",
    "text": b"hello world",
    "a memo entry of number 2^31 - 1": b"\x80\x02}r\xff\xff\xff\x7f.",
    "plain data": pickle.dumps({"data": [1.5, "a", None], "labels": [True]}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles_are_refused_and_do_nothing(case, tmp_path, monkeypatch):
    folder = tmp_path / "cifar-10-batches-py"
    mark_rebuilt(folder)
    (folder / "test_batch").write_bytes(HOSTILE[case])
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"cannot read .*test_batch as a batch of CIFAR: .+"):
            data.load("cifar10/test", root=tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 1e7
    finally:
        tracemalloc.stop()
    assert not list(Path().iterdir())


def test_official_files_must_have_the_official_content(tmp_path, monkeypatch):
    """The official content is replaced by a small one, so that it can be changed."""
    images, labels = write_cifar(tmp_path, "cifar10")["train"]
    folder = tmp_path / "cifar-10-batches-py"
    (folder / "provenance.json").unlink()
    pixels, numbers = (hashlib.sha256(part).hexdigest() for part in (images.tobytes(), bytes(labels)))
    content = hashlib.sha256(f"{pixels}{numbers}".encode()).hexdigest()
    monkeypatch.setitem(DATASETS, "cifar10/train", replace(find("cifar10/train"), images=15))
    monkeypatch.setitem(CONTENT, "cifar10/train", content)
    assert data.load("cifar10/train", root=tmp_path).fingerprint == pixels
    for changed in (python3_batch(images[:3], labels[9:12]), python3_batch(images[9:12], [0, 0, 0])):
        (folder / "data_batch_4").write_bytes(changed)
        with pytest.raises(ValueError, match=rf"data_batch_5 .* with the hash {content}, found"):
            data.load("cifar10/train", root=tmp_path)


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["cifar10/train", "cifar10/test", "cifar100/train", "cifar100/test"])
def test_real_cifar(name, real_root):
    dataset = data.load(name, root=real_root)
    assert content_of(dataset) == CONTENT[name]
    assert dataset.images.shape == (find(name).images, 3, 32, 32)


@pytest.mark.parametrize(("name", "write"), [("cifar10.1/test", write_cifar10_1), ("cifar10.2/test", write_cifar10_2)])
def test_new_test_sets(tmp_path, name, write):
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
def test_wrong_arrays_and_pickled_ones(tmp_path, array, message):
    write_cifar10_1(tmp_path)
    np.save(tmp_path / "cifar10.1_v6_data.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
        data.load("cifar10.1/test", root=tmp_path)


@pytest.mark.parametrize(("family", "folder"), [("cifar10-c", "CIFAR-10-C"), ("cifar100-c", "CIFAR-100-C")])
def test_severities_are_blocks(tmp_path, family, folder):
    images, labels = write_cifar_c(tmp_path, folder, "fog")
    for severity in range(1, 6):
        dataset = data.load(f"{family}/fog/{severity}", root=tmp_path)
        part = slice(4 * (severity - 1), 4 * severity)
        np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images[part])
        assert dataset.labels.tolist() == labels[part].tolist()
        assert dataset.info["rebuilt"] == "true"


def test_released_files_are_not_marked_and_have_the_released_size(tmp_path):
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


def test_a_number_of_images_that_is_no_multiple_of_five(tmp_path):
    write_cifar_c(tmp_path)
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", random_images(19, seed=0))
    with pytest.raises(ValueError, match="images at 5 severities, found 19 images"):
        data.load("cifar10-c/fog/1", root=tmp_path)


def test_validation_images_are_corrupted_by_what_no_test_set_has(tmp_path):
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
