"""The pickle reader: agrees with Python's own on plain data, and runs no code that a file asks for."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regmixup.data.readers.unpickle import read_pickle
from tests.data.official import python2_list, string

numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False))
plain = st.one_of(numbers, st.text(max_size=300), st.binary(min_size=1, max_size=300), st.booleans(), st.none())
values = st.one_of(plain, st.lists(plain, max_size=5), st.dictionaries(st.text(max_size=5), plain, max_size=3))


@given(content=st.dictionaries(st.text(max_size=10), values, max_size=5), protocol=st.integers(2, 5))
def test_agrees_with_pickle_on_plain_data(
    content: dict[str, Any], protocol: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("pickle") / "f"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    assert read_pickle(path) == content


@pytest.mark.parametrize(
    ("protocol", "dtype", "order"),
    [(2, "u1", "C"), (2, ">i4", "F"), (3, "<i8", "C"), (4, "?", "C")],
)
def test_arrays_of_this_numpy(tmp_path: Path, protocol: int, dtype: str, order: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype, order=order)
    (tmp_path / "f").write_bytes(pickle.dumps({"a": array, "again": array}, protocol=protocol))
    content = read_pickle(tmp_path / "f")
    for key in ("a", "again"):
        np.testing.assert_array_equal(content[key], array)
        assert content[key].dtype == array.dtype


def test_python_2_strings_stay_bytes_and_keys_become_text(tmp_path: Path) -> None:
    program = b"\x80\x02}(" + string("names") + python2_list([string("caf\xe9".encode("latin-1"))], 1) + b"u."
    (tmp_path / "f").write_bytes(program)
    assert read_pickle(tmp_path / "f") == {"names": [b"caf\xe9"]}


SENTINEL = "executed"


class Reduced:
    """An object that a pickle makes by a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def keyed(program: bytes) -> bytes:
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
    "no dictionary": b"\x80\x02].",
    "no end": b"\x80\x02}",
    "text": b"hello world",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles_are_refused_and_do_nothing(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_bytes(HOSTILE[case])
    with pytest.raises(ValueError, match=r"cannot read .*f as a pickle of plain data: .+"):
        read_pickle(tmp_path / "f")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
