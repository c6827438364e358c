"""NumPy files from anywhere: what they claim is compared with what they hold before memory is taken for it."""

import io
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from regmixup.predictions.numpy_files import read_npz
from regmixup.predictions.store import load


def header(shape):
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def archive(path, compression=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def refused(path, message):
    """In little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"cannot read predictions from {path}: {message}"):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


def test_reads_what_numpy_wrote(tmp_path):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(4, dtype=">i2"), "c": np.ones((2, 3), order="F")}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "f.npz", **arrays)
        found = read_npz(tmp_path / "f.npz", limit=1000)
        assert {name: (x.dtype, x.tolist()) for name, x in found.items()} == {
            name: (x.dtype, x.tolist()) for name, x in arrays.items()
        }
        assert list(read_npz(tmp_path / "f.npz", limit=1000, keys=("b",))) == ["b"]


@pytest.mark.parametrize("shape", [(500_000_000_000,), (1 << 20, 1 << 20), (10**30,)])
def test_a_header_that_claims_terabytes(tmp_path, shape):
    (tmp_path / "p.npy").write_bytes(header(shape))
    refused(tmp_path / "p.npy", r"an array of float64 \(.*\) takes \d{13,} bytes, found 0")
    archive(tmp_path / "p.npz", logits=header(shape))
    refused(tmp_path / "p.npz", r"logits: an array of float64 \(.*\) takes \d{13,} bytes, found 0")


def test_lengths_that_do_not_fit_an_integer(tmp_path):
    (tmp_path / "p.npy").write_bytes(header((0, 10**30)))
    refused(tmp_path / "p.npy", "")


def test_arrays_that_claim_to_grow_more_than_a_hundredfold(tmp_path):
    path = tmp_path / "p.npz"
    archive(path, logits=header((8,)) + bytes(64), features=header((8,)) + bytes(64), probs=header((8,)) + bytes(64))
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<I", len(header((8,))) + 64), struct.pack("<I", 1_500_000_000)))
    refused(path, "its arrays must take at most 1073741824 bytes, they claim 4500000000")


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_not_decompressed(tmp_path, compression):
    """A corrupt LZMA stream was a traceback, and its header says how much memory the decompressor takes."""
    content = io.BytesIO()
    np.save(content, np.zeros((6, 3)))
    archive(tmp_path / "p.npz", compression, logits=content.getvalue())
    refused(tmp_path / "p.npz", f"logits must be stored or deflated, found compression {compression}")
