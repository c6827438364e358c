"""The pickle reader: agrees with Python's own on plain data, and refuses everything else before any of it is run."""

from __future__ import annotations

import pickle
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regmixup.data import unpickle
from regmixup.data.unpickle import read_pickle

from .official import integer, put, python2_array, python2_list, string

numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False))
plain = st.one_of(numbers, st.text(max_size=300), st.binary(max_size=300), st.booleans(), st.none())
values = st.one_of(plain, st.lists(plain, max_size=5), st.dictionaries(st.text(max_size=5), plain, max_size=3))


@given(content=st.dictionaries(st.text(max_size=10), values, max_size=5), protocol=st.integers(2, 5))
def test_agrees_with_pickle_on_plain_data(
    content: dict[str, Any], protocol: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if protocol == 2 and b"" in _leaves(content):
        return  # Python 3 writes an empty byte string of protocol 2 as a call, which is refused
    path = tmp_path_factory.mktemp("pickle") / "f"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    assert read_pickle(path) == content


def _leaves(content: Any) -> list[Any]:
    if isinstance(content, dict):
        return [leaf for value in content.values() for leaf in _leaves(value)]
    return [leaf for value in content for leaf in _leaves(value)] if isinstance(content, list) else [content]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["u1", "<i4", ">i4", "<i8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_this_numpy(tmp_path: Path, protocol: int, dtype: str, order: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype, order=order)
    (tmp_path / "f").write_bytes(pickle.dumps({"a": array, "again": array}, protocol=protocol))
    content = read_pickle(tmp_path / "f")
    for key in ("a", "again"):
        np.testing.assert_array_equal(content[key], array)
        assert content[key].dtype == array.dtype


def test_numpy_scalars(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(pickle.dumps({"labels": [np.int64(3), np.uint8(7)]}, protocol=2))
    assert read_pickle(tmp_path / "f") == {"labels": [3, 7]}


@pytest.mark.parametrize("core", ["core", "_core"])
def test_old_and_new_numpy_module_names(tmp_path: Path, core: str) -> None:
    array = np.arange(8, dtype=np.uint8).reshape(2, 4)
    program = (
        b"\x80\x02}("
        + string("data")
        + python2_array(array, 1).replace(b"numpy.core", f"numpy.{core}".encode())
        + b"u."
    )
    (tmp_path / "f").write_bytes(program)
    np.testing.assert_array_equal(read_pickle(tmp_path / "f")["data"], array)


def test_python_2_strings_stay_bytes_and_keys_become_text(tmp_path: Path) -> None:
    program = (
        b"\x80\x02}" + put(0) + b"(" + string("names") + python2_list([string("caf\xe9".encode("latin-1"))], 1) + b"u."
    )
    (tmp_path / "f").write_bytes(program)
    assert read_pickle(tmp_path / "f") == {"names": [b"caf\xe9"]}


SENTINEL = "executed"


def hostile() -> dict[str, bytes]:
    shell = f"touch {SENTINEL}"
    u = string(shell)

    class Reduced:
        def __init__(self, function: Any, *arguments: Any) -> None:
            self.call = (function, arguments)

        def __reduce__(self) -> Any:
            return self.call

    import os
    import subprocess

    # Each level refers to the one below ten times: printing, comparing or copying it would take 10^30 steps.
    laughs = b"K\x01"
    for i in range(30):
        laughs = b"(" + laughs + put(i) + (b"h" + bytes([i])) * 9 + b"t"
    reconstruct = b"cnumpy.core.multiarray\n_reconstruct\n"
    ndarray = b"cnumpy\nndarray\n"
    dtype = b"cnumpy\ndtype\n" + string("u1") + b"K\x00K\x01\x87R"
    state = b"(K\x01K\x02\x85" + dtype + b"\x89" + string("ab") + b"tb"
    begun = reconstruct + ndarray + b"K\x00\x85" + string("b") + b"\x87R"

    def keyed(value: bytes) -> bytes:
        return b"\x80\x02}" + string("data") + value + b"s."

    return {
        "os.system by GLOBAL": b"\x80\x02cposix\nsystem\n(" + u + b"tR.",
        "os.system in a dictionary": keyed(b"cos\nsystem\n" + u + b"\x85R"),
        "os.system by STACK_GLOBAL": b"\x80\x04\x8c\x05posix\x8c\x06system\x93(" + u + b"tR.",
        "INST": b"(" + u + b"iposix\nsystem\n.",
        "OBJ": b"(cposix\nsystem\n" + u + b"o.",
        "NEWOBJ": b"cposix\nsystem\n" + u + b"\x85\x81.",
        "eval": keyed(b"c__builtin__\neval\n" + string(f"open('{SENTINEL}','w')") + b"\x85R"),
        "builtins": keyed(b"cbuiltins\nexec\n" + string(f"open('{SENTINEL}','w')") + b"\x85R"),
        "getattr": keyed(b"cbuiltins\ngetattr\ncnumpy\nndarray\n" + string("tofile") + b"\x86R"),
        "numpy.load": keyed(b"cnumpy\nload\n" + u + b"\x85R"),
        "dotted name": keyed(b"cnumpy\nndarray.tofile\n" + u + b"\x85R"),
        "pickled system": pickle.dumps({"data": Reduced(os.system, shell)}),
        "pickled Popen": pickle.dumps({"data": Reduced(subprocess.Popen, ["touch", SENTINEL])}, protocol=2),
        "pickled eval": pickle.dumps({"data": Reduced(eval, f"open('{SENTINEL}','w')")}, protocol=5),
        "EXT1": keyed(b"\x82\x01"),
        "PERSID": keyed(b"Pabc\n"),
        "BINPERSID": keyed(b"K\x01Q"),
        "BUILD on a name": keyed(ndarray + b"}" + string("x") + b"K\x01s" + b"b"),
        "BUILD on a dictionary": keyed(b"}N}" + string("x") + b"K\x01s\x86b"),
        "call of ndarray": keyed(ndarray + b"K\x02\x85R"),
        "call of a result": keyed(begun + b")R"),
        "reconstruct of another type": keyed(
            reconstruct + b"cnumpy\ndtype\n" + b"K\x00\x85" + string("b") + b"\x87R" + state
        ),
        "reconstruct without arguments": keyed(reconstruct + b")R"),
        "array never filled": keyed(begun),
        "array of objects": keyed(begun + state.replace(string("u1"), string("O8"))),
        "array too long": keyed(begun + state.replace(b"K\x02\x85", b"J\xff\xff\xff\x7f\x85")),
        "array with negative length": keyed(begun + state.replace(b"K\x02\x85", b"J\xfe\xff\xff\xff\x85")),
        "array with an astronomical length": keyed(
            begun + state.replace(b"K\x02\x85", b"\x8a\x20" + b"\x7f" * 32 + b"K\x00\x86")
        ),
        "array with a strange byte order": keyed(
            begun + state.replace(dtype, dtype + b"(K\x03" + string("!") + b"NNNtb")
        ),
        "codec by name": keyed(b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R"),
        "codec of no text": keyed(b"c_codecs\nencode\nK\x01X\x06\x00\x00\x00latin1\x86R"),
        "dtype from a nested list": keyed(b"cnumpy\ndtype\n" + laughs + b"\x85R"),
        "shape from nested tuples": keyed(begun + state.replace(b"K\x02\x85", laughs)),
        "nested key": b"\x80\x02}" + b"K\x01" + b"\x85" * 100_000 + b"K\x01s.",
        "list as a key": b"\x80\x02}]K\x01s.",
        "memo at 2^32-1": b"\x80\x02}r\xff\xff\xff\xff" + b"K\x01.",
        "unknown memo": keyed(b"h\x07"),
        "string of 4 GB": keyed(b"B\xff\xff\xff\xffabc"),
        "string of 2^64": keyed(b"\x8e" + b"\xff" * 8 + b"abc"),
        "string of negative length": keyed(b"T\xff\xff\xff\xffabc"),
        "integer of 2 GB": keyed(b"\x8b\xff\xff\xff\x7f"),
        "name without an end": b"c" + b"a" * 10_000,
        "name in another alphabet": b"c\xff\xfe\nx\n.",
        "invalid text": keyed(b"X\x02\x00\x00\x00\xff\xff"),
        "mark that is missing": b"\x80\x02}u.",
        "mark above the stack": b"\x80\x02}K\x01K\x02(ss.",
        "odd number of items": b"\x80\x02}(K\x01u.",
        "append to a number": b"\x80\x02K\x01K\x02a.",
        "items into a list": b"\x80\x02](K\x01K\x02u.",
        "no dictionary": b"\x80\x02K\x05.",
        "a list": b"\x80\x02].",
        "empty stack": b".",
        "nothing": b"",
        "no end": b"\x80\x02}",
        "text": b"hello world",
        "zeros": b"\x00" * 100,
    }


@pytest.mark.parametrize("case", hostile())
def test_hostile_pickles_are_refused_and_do_nothing(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_bytes(hostile()[case])
    started = time.process_time()
    with pytest.raises(ValueError, match=r"cannot read .*f as a pickle of plain data: .+"):
        read_pickle(tmp_path / "f")
    assert time.process_time() - started < 20
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_structure_that_contains_itself_is_harmless(tmp_path: Path) -> None:
    program = b"\x80\x02}" + string("labels") + b"]q\x00h\x00as."
    (tmp_path / "f").write_bytes(program)
    content = read_pickle(tmp_path / "f")
    assert content["labels"][0] is content["labels"]


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(ValueError, match="at most 307200000 bytes, found 2147483648"):
        read_pickle(tmp_path / "f")


# Small programs that took gigabytes or minutes. Each is refused before the machine runs its first instruction.
BOMBS = {
    "dictionaries": (b"\x80\x02" + b"}" * 5000, "byte 1001: expected at most 1000 instructions"),
    "keys that collide": (b"\x80\x02}(" + (b"\x8a\x09" + b"\xff" * 8 + b"\x1fN") * 9 + b"u.", "must be text, found"),
    "one key that is a number": (b"\x80\x02}K\x01Ns.", r"must be text, found \['int'\]"),
    "a key that takes for ever to hash": (
        b"\x80\x02}K\x01q\x00" + b"".join(b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(99)) + b"Ns.",
        r"must be text, found \['tuple'\]",
    ),
    "a key from the memo": (b"\x80\x02K\x01\x85q\x00}h\x00Ns.", r"must be text, found \['tuple'\]"),
    "a memo of 64 GB": (b"\x80\x02}r\xff\xff\xff\x7f.", "found one with the number 2147483647"),
    "an array of bytes of 8 EB": (b"\x80\x05}U\x01a\x96" + b"\xff" * 7 + b"\x7fs.", "bytearray8"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_bombs_are_refused_before_anything_runs(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, message = BOMBS[case]
    monkeypatch.setattr(unpickle, "MAX_INSTRUCTIONS", 1000)
    monkeypatch.setattr(unpickle, "_Unpickler", None)
    (tmp_path / "f").write_bytes(program)
    with pytest.raises(ValueError, match=rf"cannot read .*f as a pickle of plain data: .*{message}"):
        read_pickle(tmp_path / "f")


def test_the_largest_official_file_is_within_the_budget() -> None:
    labels_and_names = 50_000 * (1 + 1 + 2)
    assert 3 * labels_and_names < unpickle.MAX_INSTRUCTIONS < 5 * labels_and_names
    assert unpickle.MAX_BYTES > 155_249_918


def test_every_prefix_of_a_python_2_pickle_is_refused(tmp_path: Path) -> None:
    program = (
        b"\x80\x02}("
        + string("n")
        + integer(70_000)
        + string("data")
        + python2_array(np.zeros((2, 3), np.uint8), 1)
        + b"u."
    )
    for end in range(len(program)):
        (tmp_path / "f").write_bytes(program[:end])
        with pytest.raises(ValueError, match="cannot read"):
            read_pickle(tmp_path / "f")
    (tmp_path / "f").write_bytes(program)
    assert read_pickle(tmp_path / "f")["n"] == 70_000


def test_binary_numbers(tmp_path: Path) -> None:
    values = (0, 255, 256, 65_535, 65_536, -1, -(2**31), 2**31 - 1)
    program = (
        b"\x80\x02}" + string("n") + python2_list([*map(integer, values), b"G" + struct.pack(">d", 1.5)], 1) + b"s."
    )
    (tmp_path / "f").write_bytes(program)
    assert read_pickle(tmp_path / "f") == {"n": [*values, 1.5]}
