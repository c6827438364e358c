"""Read the pickles in which CIFAR is distributed, without running code that they contain.

A pickle runs code only through the names that it looks up. Here a few names of NumPy's are known, and each stands for
a small class of ours that makes integers or arrays of integers from bytes. Every other name is an error. This reads the
official files (Python 2, byte strings, NumPy 1) and what Python 3 with any NumPy writes in protocols 2 to 4.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from regmixup.data.files import reading


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a file: integers, strings, lists, and arrays of integers (read-only). Keys are text.

    Python 2's strings are returned as bytes. Anything wrong is a ValueError that names the file.
    """
    with reading(path, "a pickle of plain data"), path.open("rb") as file:
        content = _Unpickler(file, encoding="bytes").load()
        return {_text(key): entry.array if isinstance(entry, _Array) else entry for key, entry in content.items()}


class _Unpickler(pickle._Unpickler):  # in Python: in C, a damaged number of a memo entry takes gigabytes
    def find_class(self, module: str, name: str) -> Any:
        symbol = f"{module}.{name}".replace("._core.", ".core.")  # NumPy 2 has renamed a folder
        if symbol not in _STAND_INS:
            raise ValueError(f"it refers to {symbol[:80]!r}, which plain data never does")
        return _STAND_INS[symbol]


def _text(text: str | bytes) -> str:
    return text.decode("ascii") if isinstance(text, bytes) else text


class _StandIn:
    """A name that a pickle may call. Without `__setstate__` it could also set attributes of the class itself."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        raise ValueError("it fills in something that is no array")


class _Dtype(_StandIn):
    """`numpy.dtype`, of integers: made from a code such as u1, then told its byte order."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code, self.order = _text(code), "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])

    def to_numpy(self) -> np.dtype[Any]:
        dtype = np.dtype(self.order + self.code)
        if dtype.kind not in "iub":
            raise ValueError(f"arrays must hold integers, found {dtype}")
        return dtype


class _Array(_StandIn):
    """An array: empty at first (`_reconstruct`), then told its shape, type and bytes."""

    array: np.ndarray

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, content = state
        self.array = np.frombuffer(content, dtype.to_numpy()).reshape(shape, order="F" if is_fortran else "C")


class _Bytes(_StandIn):
    """`_codecs.encode`: how Python 3 writes byte strings in protocol 2."""

    def __new__(cls, text: str, encoding: str | bytes) -> bytes:  # type: ignore[misc]
        return text.encode("latin-1")


_STAND_INS = {
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
    "_codecs.encode": _Bytes,
    "numpy.core.multiarray._reconstruct": _Array,
}
