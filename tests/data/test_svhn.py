"""SVHN, and the reader of MAT-files against SciPy's writer."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.io import loadmat, savemat

from regmixup import data
from regmixup.data import mat5
from regmixup.data.mat5 import read_arrays, read_records

from .official import channel_statistics, random_images, write_svhn

DTYPES = st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("split", ["train", "test", "extra"])
def test_reads_what_was_written(tmp_path: Path, split: str, compressed: bool) -> None:
    images, digits = write_svhn(tmp_path, split, count=12, compressed=compressed)
    dataset = data.load(f"svhn/{split}", root=tmp_path)
    np.testing.assert_array_equal(dataset.images.permute(0, 2, 3, 1).numpy(), images)
    assert dataset.images.is_contiguous()
    assert dataset.labels.tolist() == digits
    assert dataset.classes == tuple("0123456789")


@given(array=arrays.arrays(DTYPES, arrays.array_shapes(min_dims=2, max_dims=4, max_side=4)), compressed=st.booleans())
def test_mat_files_read_as_scipy_wrote_them(
    array: np.ndarray, compressed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("mat") / "f.mat"
    savemat(path, {"first": array, "a_second_variable": array.T}, do_compression=compressed)
    found = read_arrays(path, limit=1 << 16)
    np.testing.assert_array_equal(found["first"], loadmat(path)["first"])
    np.testing.assert_array_equal(found["first"], array)
    np.testing.assert_array_equal(found["a_second_variable"], array.T)


def test_structures(tmp_path: Path) -> None:
    kinds = [("number", object), ("text", object), ("list", object), ("cell", object)]
    rows = [(1, "n01440764", np.arange(3), np.array([1, "a"], dtype=object)), (2, "größer", np.zeros((0, 0)), {"a": 1})]
    for compressed in (True, False):
        savemat(tmp_path / "f.mat", {"all": np.array(rows, dtype=kinds)}, do_compression=compressed)
        first, second = read_records(tmp_path / "f.mat", "all", limit=10_000)
        assert (first["number"].item(), first["text"], first["list"].tolist()) == (1, "n01440764", [[0, 1, 2]])
        assert (second["number"].item(), second["text"], second["list"].size) == (2, "größer", 0)
        assert first["cell"] is second["cell"] is None
    with pytest.raises(ValueError, match="expected an array of structures named 'other'"):
        read_records(tmp_path / "f.mat", "other", limit=10_000)


def _content(**changes: Any) -> dict[str, Any]:
    images = random_images(4, seed=1).transpose(1, 2, 3, 0)
    return {"X": images, "y": np.array([[1], [10], [3], [4]], np.uint8), **changes}


WRONG = {
    "no X": ({"y": np.ones((4, 1))}, "variables X and y, found no X"),
    "other variables": ({"Z": np.ones((4, 1))}, "found no X and no y"),
    "X of float": (_content(X=np.zeros((32, 32, 3, 4))), r"X of type uint8 .* found float64"),
    "X in another order": (_content(X=np.zeros((4, 32, 32, 3), np.uint8)), r"found uint8 \(4, 32, 32, 3\)"),
    "a label too few": (_content(y=np.ones((3, 1))), "y with 4 labels, found 3"),
    "label 0": (_content(y=np.array([[1], [0], [3], [4]])), "labels from 1 to 10, found 0"),
    "label 11": (_content(y=np.array([[1], [11], [3], [4]])), "found 11"),
    "label 1.5": (_content(y=np.array([[1], [1.5], [3], [4]])), "found 1.5"),
    "label nan": (_content(y=np.array([[1], [np.nan], [3], [4]])), "found nan"),
    "text": (_content(y="abcd"), "the variable 'y' must be a real numeric array"),
    "a structure": (_content(y={"a": 1}), "the variable 'y' must be a real numeric array"),
    "a cell": (_content(y=np.array([1, "a"], dtype=object)), "the variable 'y' must be a real numeric array"),
    "complex numbers": (_content(y=np.array([1j, 2, 3, 4])), "the variable 'y' must be a real numeric array"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_content_names_the_file_and_the_difference(tmp_path: Path, case: str) -> None:
    write_svhn(tmp_path)
    content, message = WRONG[case]
    savemat(tmp_path / "test_32x32.mat", content)
    with pytest.raises(ValueError, match=message) as error:
        data.load("svhn/test", root=tmp_path)
    assert str(tmp_path / "test_32x32.mat") in str(error.value)


def test_the_official_number_of_images(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    (tmp_path / "provenance.json").unlink()
    with pytest.raises(ValueError, match=r"test_32x32.mat .* expected 26032 images, found 6"):
        data.load("svhn/test", root=tmp_path)


def test_a_variable_may_not_grow_beyond_its_limit(tmp_path: Path) -> None:
    savemat(tmp_path / "f.mat", {"X": np.zeros((1000, 1000))}, do_compression=True)
    assert (tmp_path / "f.mat").stat().st_size < 20_000
    with pytest.raises(ValueError, match="takes more than the 100000 bytes that are left to it"):
        read_arrays(tmp_path / "f.mat", limit=100_000)


def test_the_limit_is_that_of_all_variables_together(tmp_path: Path) -> None:
    savemat(tmp_path / "f.mat", {f"v{n}": np.zeros(10_000) for n in range(4)}, do_compression=True)
    assert len(read_arrays(tmp_path / "f.mat", limit=330_000)) == 4
    with pytest.raises(ValueError, match=r"f\.mat as a MAT-file: a compressed variable takes more than the \d+ bytes"):
        read_arrays(tmp_path / "f.mat", limit=300_000)


def _element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def _structure(names: bytes, values: bytes) -> bytes:
    flags, shape, name = struct.pack("<II", 2, 0), struct.pack("<ii", 1, 1), b"X"
    head = _element(6, flags) + _element(5, shape) + _element(1, name)
    return _element(14, head + _element(5, struct.pack("<i", 1)) + _element(1, names) + values)


EMPTY = _element(14, b"")
BOMBS = {
    "many values": (_structure(b"a", EMPTY * 200_000), "must hold at most 1000 values"),
    "many fields": (_structure(b"a" * 1_600_000, b""), "states 1 as the length of its fields' names"),
    "one empty variable after the other": (EMPTY * 200_000, "a variable must begin with"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_small_files_that_grow_to_many_parts(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.6 MB compressed to a few KB, of which each part was a Python object."""
    monkeypatch.setattr(mat5, "MAX_VALUES", 1000)
    write_svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    content, message = BOMBS[case]
    packed = zlib.compress(content)
    assert len(packed) < 10_000
    path.write_bytes(b"".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(packed)) + packed)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"test_32x32.mat as a MAT-file: .*{message}"):
            data.load("svhn/test", root=tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_too_many_variables(tmp_path: Path) -> None:
    savemat(tmp_path / "f.mat", {f"v{n}": np.zeros(1) for n in range(17)})
    with pytest.raises(ValueError, match="expected at most 16 variables"):
        read_arrays(tmp_path / "f.mat", limit=100_000)


def test_an_array_that_announces_terabytes(tmp_path: Path) -> None:
    """In 200 bytes: SciPy asks for the memory at once."""
    shape = struct.pack("<ii", 1 << 20, 1 << 20)
    parts = _element(6, struct.pack("<II", 9, 0)) + _element(5, shape) + _element(1, b"X") + _element(2, b"")
    (tmp_path / "f.mat").write_bytes(b"".ljust(124) + b"\x00\x01IM" + _element(14, parts))
    with pytest.raises(ValueError, match=r"the variable 'X' of shape \(1048576, 1048576\) .* holds 0 bytes"):
        read_arrays(tmp_path / "f.mat", limit=100_000)


@pytest.mark.parametrize("compressed", [True, False])
def test_truncated_files(tmp_path: Path, compressed: bool) -> None:
    write_svhn(tmp_path, count=1, compressed=compressed)
    path = tmp_path / "test_32x32.mat"
    whole = path.read_bytes()
    for end in [*range(0, 400, 7), *range(400, len(whole), 199), len(whole) - 1]:
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"test_32x32\.mat"):
            data.load("svhn/test", root=tmp_path)


def test_other_versions_of_mat_files(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    savemat(path, {"X": np.zeros((40, 40))}, format="4")
    with pytest.raises(ValueError, match="expected the header of a version 5 MAT-file"):
        data.load("svhn/test", root=tmp_path)
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n" * 4)
    with pytest.raises(ValueError, match="expected the header of a version 5 MAT-file"):
        data.load("svhn/test", root=tmp_path)


def test_a_compressed_element_that_holds_no_variable(tmp_path: Path) -> None:
    inside = zlib.compress(b"")
    element = (15).to_bytes(4, "little") + len(inside).to_bytes(4, "little") + inside
    (tmp_path / "f.mat").write_bytes(b"".ljust(124) + b"\x00\x01IM" + element)
    with pytest.raises(ValueError, match="expected a variable, found an element of type 0"):
        read_arrays(tmp_path / "f.mat", limit=100)


@pytest.mark.real_data
def test_real_svhn(real_root: Path) -> None:
    dataset = data.load("svhn/test", root=real_root)
    assert dataset.images.shape == (26_032, 3, 32, 32)
    assert dataset.labels.bincount().tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]
    found_mean, found_std = channel_statistics(dataset.images)
    np.testing.assert_allclose(found_mean, (0.4524, 0.4525, 0.4690), atol=6e-5)
    np.testing.assert_allclose(found_std, (0.2194, 0.2266, 0.2285), atol=6e-5)
    assert data.verify("svhn/test", root=real_root).status == "ok"
