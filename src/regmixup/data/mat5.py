"""Numeric arrays of MATLAB files, version 5: the format of SVHN.

A file is a header of 128 bytes and then elements: a tag (type, number of bytes) and the data. A variable is an element
of type `MATRIX`, or one compressed by zlib, whose data are again elements: flags, dimensions, name, values. Only this
is read; structures, objects and functions are refused. A compressed variable may not grow beyond a stated size.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMERIC_CLASSES = range(6, 16)


def read_mat(path: Path, *, limit: int) -> dict[str, np.ndarray]:
    """The numeric arrays of a file, each in MATLAB's (column-major) order; a ValueError names the file.

    limit: the most bytes that one variable may take uncompressed.
    """
    size = path.stat().st_size
    try:
        if size < 136:
            raise ValueError(f"expected a header of 128 bytes and variables, found {size} bytes")
        data = np.memmap(path, np.uint8, mode="r").data
        order = {b"IM": "<", b"MI": ">"}.get(bytes(data[126:128]), "")
        version = np.frombuffer(data[124:126], f"{order}u2")[0] if order else 0
        if version != 0x0100:
            raise ValueError("expected the header of a version 5 MAT-file, found another")
        variables = {}
        for kind, content in _elements(data[128:], order, aligned=False):
            if kind == COMPRESSED:
                inner = list(_elements(_decompress(content, limit), order))
                kind, content = inner[0] if inner else (0, memoryview(b""))
            if kind != MATRIX:
                raise ValueError(f"expected a variable, found an element of type {kind}")
            name, array = _variable(content, order)
            variables[name] = array
        return variables
    except (ValueError, OverflowError, MemoryError, zlib.error) as error:
        raise ValueError(f"cannot read {path} as a MAT-file: {error}") from error


def _elements(data: memoryview, order: str, *, aligned: bool = True) -> Iterator[tuple[int, memoryview]]:
    """The (type, content) pairs that follow one another. Inside a variable they begin at multiples of 8 bytes."""
    position = 0
    while position < len(data):
        if len(data) - position < 8:
            raise ValueError(f"{len(data) - position} bytes are left over where an element should begin")
        kind, size = np.frombuffer(data[position : position + 8], f"{order}u4").tolist()
        start = position + 8
        if kind >> 16:  # a short element: the sizes share one word, and up to four bytes of data follow
            kind, size, start = kind & 0xFFFF, kind >> 16, position + 4
            if size > 4:
                raise ValueError(f"a short element announces {size} bytes, it can hold 4")
            position += 8
        else:
            position = start + (-(-size // 8) * 8 if aligned or kind != COMPRESSED else size)
        if start + size > len(data):
            raise ValueError(f"an element announces {size} bytes, {len(data) - start} are left")
        yield kind, data[start : start + size]


def _decompress(data: memoryview, limit: int) -> memoryview:
    stream = zlib.decompressobj()
    content = stream.decompress(data, limit)
    if not stream.eof:
        raise ValueError(
            f"a compressed variable takes more than {limit} bytes"
            if len(content) >= limit
            else f"a compressed variable ends too early, after {len(content)} bytes"
        )
    return memoryview(content)


def _variable(data: memoryview, order: str) -> tuple[str, np.ndarray]:
    parts = list(_elements(data, order))
    if len(parts) < 4 or [kind for kind, _ in parts[:3]] != [6, 5, 1] or len(parts[0][1]) != 8:
        raise ValueError("a variable must begin with its flags, dimensions and name")
    flags = int(np.frombuffer(parts[0][1], f"{order}u4")[0])
    name = bytes(parts[2][1]).decode("ascii")
    if flags & 0xFF not in NUMERIC_CLASSES or flags & 0x0800 or len(parts) != 4:
        raise ValueError(f"the variable {name!r} must be a real numeric array")
    if len(parts[1][1]) % 4 or len(parts[1][1]) > 32:
        raise ValueError(f"the variable {name!r} must have up to 8 dimensions")
    shape = tuple(np.frombuffer(parts[1][1], f"{order}i4").tolist())
    kind, content = parts[3]
    if kind not in NUMBERS:
        raise ValueError(f"the variable {name!r} holds values of the unknown type {kind}")
    dtype = np.dtype(order + NUMBERS[kind])
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"the variable {name!r} of shape {shape} and type {dtype} holds {len(content)} bytes")
    return name, np.frombuffer(content, dtype).reshape(shape, order="F")
