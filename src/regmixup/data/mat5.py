"""MATLAB files, version 5: the format of SVHN, which is read here, and of ImageNet's list of classes.

A file is a header of 128 bytes and then elements: a tag (type, number of bytes) and the data. A variable is an element
of type `MATRIX`, or one compressed by zlib, whose data are again elements: flags, dimensions, name, values. This reads
numeric arrays, and arrays of structures whose fields are numbers or text, and rejects everything else. The uncompressed
size, the number of variables and the number of values in a structure are bounded. (SciPy's reader allocates what a
header announces, and a single changed byte can make it crash the interpreter.)
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regmixup.data.catalogue import Dataset
from regmixup.data.files import is_rebuilt, reading, rebuilt_info, wrong_file
from regmixup.data.images import ImageSet

MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXTS = {1: "utf-8", 2: "utf-8", 16: "utf-8", 4: "utf-16", 17: "utf-16"}
STRUCTURE, TEXT, NUMERIC = 2, 4, range(6, 16)
COMPLEX = 0x0800

MAX_VARIABLES = 16
MAX_FIELDS = 64
MAX_VALUES = 1 << 16
"""Of a structure; ImageNet's list of classes has 1,860 entries of 8 fields, 14,880 values."""

Record = dict[str, Any]


def load_svhn(dataset: Dataset, root: Path) -> ImageSet:
    """Read `svhn/train`, `svhn/test` or `svhn/extra`, cropped digits; the label is the digit.

    Each file holds `X`, uint8 (32, 32, 3, N), and `y`, (N, 1), where the digit 0 is written as 10.
    """
    path, count = root / dataset.files[0], dataset.images
    assert count is not None
    # A label is a number of 8 bytes; the rest is for headers.
    variables = read_arrays(path, limit=(count + 1) * (3072 + 8 + 8))
    if missing := {"X", "y"} - variables.keys():
        raise wrong_file(path, "variables X and y", f"no {' and no '.join(sorted(missing))}")
    pixels, digits = variables["X"], variables["y"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise wrong_file(path, "X of type uint8 and shape (32, 32, 3, N)", f"{pixels.dtype} {pixels.shape}")
    if pixels.shape[3] != count and not is_rebuilt(path.parent):
        raise wrong_file(path, f"{count} images", pixels.shape[3])
    if digits.size != pixels.shape[3]:
        raise wrong_file(path, f"y with {pixels.shape[3]} labels", f"{digits.size}")
    outside = ~np.isin(digits, np.arange(1, 11))
    if outside.any():
        raise wrong_file(path, "labels from 1 to 10", f"{digits[outside][0]}")
    images = torch.from_numpy(np.array(pixels.transpose(3, 2, 0, 1), order="C"))
    labels = torch.from_numpy(digits.reshape(-1).astype(np.int64) % 10)
    return ImageSet(images, labels, tuple("0123456789"), dataset.name, rebuilt_info(path.parent))


def read_arrays(path: Path, *, limit: int) -> dict[str, np.ndarray]:
    """Read the variables of a file, all numeric arrays in MATLAB's (column-major) order; a ValueError names the file.

    limit: the most bytes that all variables together may take uncompressed.
    """
    variables = _read(path, limit)
    for name, value in variables.items():
        if not isinstance(value, np.ndarray):
            raise ValueError(f"cannot read {path} as a MAT-file: the variable {name!r} must be a real numeric array")
    return variables


def read_records(path: Path, name: str, *, limit: int) -> list[Record]:
    """Read a variable that is an array of structures, as dictionaries; a field is an array, text, or else None."""
    value = _read(path, limit).get(name)
    if not isinstance(value, list):
        raise ValueError(f"cannot read {path} as a MAT-file: expected an array of structures named {name!r}")
    return value


def _read(path: Path, limit: int) -> dict[str, Any]:
    size = path.stat().st_size
    with reading(path, "a MAT-file"):
        if size < 136:
            raise ValueError(f"expected a header of 128 bytes and variables, found {size} bytes")
        data = np.memmap(path, np.uint8, mode="r").data
        order = {b"IM": "<", b"MI": ">"}.get(bytes(data[126:128]), "")
        version = np.frombuffer(data[124:126], f"{order}u2")[0] if order else 0
        if version != 0x0100:
            raise ValueError("expected the header of a version 5 MAT-file, found another")
        variables: dict[str, Any] = {}
        for number, (kind, content) in enumerate(_elements(data[128:], order, aligned=False), start=1):
            if number > MAX_VARIABLES:
                raise ValueError(f"expected at most {MAX_VARIABLES} variables")
            if kind == COMPRESSED:
                inner = _decompress(content, limit)
                limit -= len(inner)
                kind, content = next(_elements(inner, order), (0, memoryview(b"")))
            if kind != MATRIX:
                raise ValueError(f"expected a variable, found an element of type {kind}")
            name, value = _variable(content, order)
            variables[name] = value
        return variables


def _elements(data: memoryview, order: str, *, aligned: bool = True) -> Iterator[tuple[int, memoryview]]:
    """Yield the (type, content) pairs of a sequence. Inside a variable they begin at multiples of 8 bytes."""
    position = 0
    while position < len(data):
        if len(data) - position < 8:
            raise ValueError(f"{len(data) - position} bytes are left over where an element should begin")
        kind, size = struct.unpack_from(f"{order}II", data, position)
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
    content = stream.decompress(data, limit + 1)
    if len(content) > limit:
        raise ValueError(f"a compressed variable takes more than the {limit} bytes that are left to it")
    if not stream.eof:
        raise ValueError(f"a compressed variable ends too early, after {len(content)} bytes")
    return memoryview(content)


def _variable(data: memoryview, order: str, *, inside: bool = False) -> tuple[str, Any]:
    """Return a variable's name and value. inside: whether it is a field of a structure; those are not nested."""
    parts = list(islice(_elements(data, order), 5 if inside else MAX_VALUES + 6))
    if len(parts) < 4 or [kind for kind, _ in parts[:3]] != [6, 5, 1] or len(parts[0][1]) != 8:
        raise ValueError("a variable must begin with its flags, dimensions and name")
    flags = int(np.frombuffer(parts[0][1], f"{order}u4")[0])
    name = bytes(parts[2][1]).decode("ascii")
    if len(parts[1][1]) % 4 or len(parts[1][1]) > 32:
        raise ValueError(f"the variable {name!r} must have up to 8 dimensions")
    shape = tuple(np.frombuffer(parts[1][1], f"{order}i4").tolist())
    if not shape or min(shape) < 0:
        raise ValueError(f"the variable {name!r} has the shape {shape}")
    sort = flags & 0xFF
    if sort in NUMERIC and not flags & COMPLEX and len(parts) == 4:
        return name, _array(name, shape, parts[3], order)
    if sort == TEXT and len(parts) == 4 and parts[3][0] in TEXTS:
        encoding = TEXTS[parts[3][0]] + ("" if TEXTS[parts[3][0]] == "utf-8" else "-le" if order == "<" else "-be")
        return name, bytes(parts[3][1]).decode(encoding)
    if sort == STRUCTURE and not inside:
        return name, _records(name, math.prod(shape), parts[3:], order)
    return name, None


def _array(name: str, shape: tuple[int, ...], part: tuple[int, memoryview], order: str) -> np.ndarray:
    kind, content = part
    if kind not in NUMBERS:
        raise ValueError(f"the variable {name!r} holds values of the unknown type {kind}")
    dtype = np.dtype(order + NUMBERS[kind])
    if math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"the variable {name!r} of shape {shape} and type {dtype} holds {len(content)} bytes")
    return np.frombuffer(content, dtype).reshape(shape, order="F")


def _records(name: str, count: int, parts: list[tuple[int, memoryview]], order: str) -> list[Record]:
    """Read the length of the fields' names, the names, and then the fields of one structure after the other."""
    if len(parts) < 2 or parts[0][0] != 5 or len(parts[0][1]) != 4 or parts[1][0] != 1:
        raise ValueError(f"the structure {name!r} must state the names of its fields")
    length, names = int(np.frombuffer(parts[0][1], f"{order}i4")[0]), bytes(parts[1][1])
    if length < 1 or len(names) % length or len(names) > MAX_FIELDS * length:
        raise ValueError(f"the structure {name!r} states {length} as the length of its fields' names")
    fields = [names[i : i + length].rstrip(b"\x00").decode("ascii") for i in range(0, len(names), length)]
    if len(parts) - 2 > MAX_VALUES:
        raise ValueError(f"the structure {name!r} must hold at most {MAX_VALUES} values")
    if len(parts) - 2 != count * len(fields):
        raise ValueError(f"the structure {name!r} must hold {count} x {len(fields)} values, it holds {len(parts) - 2}")
    values = [_variable(content, order, inside=True)[1] if len(content) else None for _, content in parts[2:]]
    return [
        dict(zip(fields, values[i : i + len(fields)], strict=True)) for i in range(0, len(values), max(1, len(fields)))
    ]
