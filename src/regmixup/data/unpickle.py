"""Read the pickles in which CIFAR is distributed, without running code that they contain.

A pickle is a program for a stack machine. It is read twice. `_check` walks through its instructions with the standard
library's disassembler, and runs none. It accepts those of plain data (numbers, strings, lists, dictionaries, NumPy
arrays of integers), up to several times the number in the largest official file, and dictionary keys that are text.
Only then does `pickle.Unpickler` run it, and the names of NumPy's functions resolve to a few lines of ours.

Protocols 2 to 5 are supported: the official files (Python 2, byte strings, NumPy 1) and what Python 3 with any NumPy
writes.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regmixup.data.files import reading

_LARGEST = 50_000
"""Images in the largest official file, the train set of CIFAR-100."""
MAX_BYTES = 2 * _LARGEST * 3072
MAX_INSTRUCTIONS = 16 * _LARGEST
"""The official files have about 4 per image; labels that are NumPy's integers take 7 each."""
INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "b1")

_PUT = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GET = {"BINGET", "LONG_BINGET"}
_ALLOWED = {
    "PROTO", "FRAME", "MARK", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "BINFLOAT", "SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8",
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1",
    "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
    *_PUT, *_GET,
}  # fmt: skip
_TEXT = {"str", "bytes", "bytes_or_str"}
"""Kinds of values that may be keys: hashing a nested tuple may take forever, and integers can be made to collide."""


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a file: integers, strings, lists, and arrays of integers (read-only). Keys are text.

    Python 2's strings are returned as bytes. Anything wrong is a ValueError that names the file.
    """
    with reading(path, "a pickle of plain data"):
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"expected at most {MAX_BYTES} bytes, found {path.stat().st_size}")
        program = path.read_bytes()
        _check(program)
        value = _Unpickler(io.BytesIO(program), encoding="bytes").load()
        if type(value) is not dict:
            raise ValueError(f"expected a dictionary, found {type(value).__name__}")
        return {_key(key): item.finished() if type(item) is _Array else item for key, item in value.items()}


def _key(key: str | bytes) -> str:
    return key.decode("ascii") if isinstance(key, bytes) else key


def _check(program: bytes) -> None:
    """Raise unless a program has instructions of plain data only, not too many, and text for keys. Runs none.

    The stack is followed by the kinds of its values, as pickletools calls them.
    """
    stack: list[str] = []
    marks: list[int] = []
    memo: dict[int, str] = {}
    for count, (code, value, position) in enumerate(pickletools.genops(program), start=1):
        if code.name not in _ALLOWED:
            raise ValueError(f"byte {position}: the instruction {code.name} is not one of plain data")
        if count > MAX_INSTRUCTIONS:
            raise ValueError(f"byte {position}: expected at most {MAX_INSTRUCTIONS} instructions")
        if code.name == "MARK":
            marks.append(len(stack))
        elif code.name in _PUT:
            index = len(memo) if value is None else value
            if not stack:
                raise ValueError(f"byte {position}: an instruction finds nothing to work on")
            if index > MAX_INSTRUCTIONS:  # the machine makes room for all smaller numbers
                raise ValueError(
                    f"byte {position}: expected at most {MAX_INSTRUCTIONS} values, found one with the number {index}"
                )
            memo[index] = stack[-1]
        elif code.name in _GET:
            if value not in memo:
                raise ValueError(f"byte {position}: value {value} is used before it exists")
            stack.append(memo[value])
        else:
            taken, fixed = [], len(code.stack_before)
            if pickletools.markobject in code.stack_before:
                if not marks:
                    raise ValueError(f"byte {position}: a list of values has no beginning")
                start, fixed = marks.pop(), code.stack_before.index(pickletools.markobject)
                taken = stack[start:]
                del stack[start:]
            if fixed > len(stack):
                raise ValueError(f"byte {position}: an instruction finds nothing to work on")
            keys = taken[::2] if code.name == "SETITEMS" else stack[-2:-1] if code.name == "SETITEM" else []
            if not _TEXT.issuperset(keys):
                raise ValueError(f"byte {position}: a dictionary key must be text, found {keys}"[:200])
            del stack[len(stack) - fixed :]
            stack += [kind.name for kind in code.stack_after]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        symbol = f"{module}.{name}"
        if symbol not in _NAMES:
            raise ValueError(f"it refers to {symbol[:80]!r}, which plain data never does")
        return _NAMES[symbol]


class _Name:
    """A stand-in for a NumPy name in a pickle: it can be called, and nothing else."""

    def __init__(self, make: Callable[..., object]) -> None:
        self.make = make

    def __call__(self, *arguments: object) -> object:
        return self.make(*arguments)

    def __setstate__(self, state: object) -> None:
        raise ValueError("it tries to fill in something that is no array")


@dataclass
class _Dtype:
    """An integer type: its code, and its byte order once the pickle has stated it."""

    code: str
    order: str = "|"

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("latin-1") if type(state[1]) is bytes else state[1]
        if order not in ("|", "<", ">", "="):
            raise ValueError("a type must have a byte order")
        self.order = order

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.code if self.order == "=" else self.order + self.code)


@dataclass
class _Array:
    """An array whose content may follow in a later instruction."""

    value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        self.value = _array(content, shape, dtype, "F" if fortran is True else "C")

    def finished(self) -> np.ndarray:
        if self.value is None:
            raise ValueError("an array has no content")
        return self.value


def _array(data: object, shape: object, dtype: object, order: object) -> np.ndarray:
    shape = (shape,) if type(shape) is int else shape
    if not isinstance(shape, tuple) or len(shape) > 4 or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("an array's shape must be up to 4 integers >= 0")
    if type(dtype) is not _Dtype or not isinstance(data, bytes | bytearray) or order not in ("C", "F"):
        raise ValueError("an array must have an integer type and bytes")
    kind = dtype.numpy()
    size = math.prod(shape) * kind.itemsize
    if len(data) != size:
        raise ValueError(f"an array of type {kind} needs {size} bytes, got {len(data)}")
    array = np.frombuffer(data, kind).reshape(shape, order=order)
    array.setflags(write=False)
    return array


def _ndarray(*_: object) -> object:
    raise ValueError("an array must be made by one of NumPy's own functions for pickles")


def _reconstruct(*arguments: object) -> _Array:
    if len(arguments) != 3 or arguments[0] is not _NAMES["numpy.ndarray"]:
        raise ValueError("an array must be a plain numpy.ndarray")
    return _Array()


def _dtype(code: object = None, *_: object) -> _Dtype:
    code = code.decode("latin-1") if isinstance(code, bytes) else code
    if not isinstance(code, str) or code not in INTEGERS:
        raise ValueError("an array must hold integers")
    return _Dtype(code)


def _scalar(dtype: object = None, data: object = None, *_: object) -> int:
    return int(_array(data, (), dtype, "C"))


def _encode(text: object = None, encoding: object = None, *_: object) -> bytes:
    # How Python 3 writes byte strings in protocol 2.
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise ValueError("bytes must be given as latin1 text")
    return text.encode("latin-1")


def _frombuffer(data: object, dtype: object, shape: object, order: object) -> _Array:
    # How NumPy writes arrays in protocol 5.
    return _Array(_array(data, shape, dtype, order))


_NAMES = {
    "numpy.ndarray": _Name(_ndarray),
    "numpy.dtype": _Name(_dtype),
    "_codecs.encode": _Name(_encode),
    **{f"numpy.{core}.multiarray._reconstruct": _Name(_reconstruct) for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _Name(_scalar) for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _Name(_frombuffer) for core in ("core", "_core")},
}
