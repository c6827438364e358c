"""Reading the pickles in which CIFAR is distributed, without running anything they contain.

A pickle is a program for a small stack machine, and Python's own machine lets it call what it likes. The machine below
knows the instructions that plain data needs (numbers, strings, lists, dictionaries, NumPy arrays of integers) and
refuses all others. Nothing is imported or called: a name such as `numpy.ndarray` stays a name, and the few that stand
for arrays are given their meaning here. What a file can make this use of memory is bounded by the file's size.

Read are protocols 2 to 5: the official files (Python 2, byte strings, NumPy 1) and what Python 3 with any NumPy writes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MAX_BYTES = 1 << 30
INTEGERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "b1")


@dataclass(frozen=True)
class Symbol:
    """A name the pickle refers to; never looked up."""

    name: str


@dataclass
class Dtype:
    """An integer type: its code, and its byte order once the pickle has stated it."""

    code: str
    order: str = "|"

    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.code if self.order == "=" else self.order + self.code)


@dataclass
class Array:
    """An array whose content follows in a later instruction."""

    value: np.ndarray | None = None


def describe(value: object) -> str:
    """A value from the file, for a message. Nested ones only by type: printing a hostile one might never end."""
    return repr(value)[:60] if type(value) in (str, bytes, int, float, bool) else type(value).__name__


def _array(data: object, shape: object, dtype: object, order: object) -> np.ndarray:
    shape = (shape,) if type(shape) is int else shape
    if not isinstance(shape, tuple) or len(shape) > 4 or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("an array's shape must be up to 4 integers >= 0")
    if not isinstance(dtype, Dtype) or not isinstance(data, bytes) or order not in ("C", "F"):
        raise ValueError("an array must have an integer type and bytes")
    kind = dtype.numpy()
    size = math.prod(shape) * kind.itemsize
    if len(data) != size:
        raise ValueError(f"an array of shape {shape} and type {kind} needs {size} bytes, got {len(data)}")
    return np.frombuffer(data, kind).reshape(shape, order=order)


def _reconstruct(*arguments: object) -> Array:
    if len(arguments) != 3 or arguments[0] != Symbol("numpy.ndarray"):
        raise ValueError("an array must be a plain numpy.ndarray")
    return Array()


def _dtype(code: object = None, *_: object) -> Dtype:
    code = code.decode("latin-1") if isinstance(code, bytes) else code
    if not isinstance(code, str) or code not in INTEGERS:
        raise ValueError(f"an array must hold integers, got the type {describe(code)}")
    return Dtype(code)


def _scalar(dtype: object = None, data: object = None, *_: object) -> int:
    return int(_array(data, (), dtype, "C"))


def _encode(text: object = None, encoding: object = None, *_: object) -> bytes:
    # How Python 3 writes byte strings in protocol 2.
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise ValueError("bytes must be given as latin1 text")
    return text.encode("latin-1")


def _frombuffer(*arguments: object) -> Array:
    # How NumPy writes arrays in protocol 5.
    if len(arguments) != 4:
        raise ValueError("an array must have bytes, a type, a shape and an order")
    data, dtype, shape, order = arguments
    return Array(_array(data, shape, dtype, order))


MEANINGS: dict[str, Callable[..., object]] = {
    "numpy.dtype": _dtype,
    "_codecs.encode": _encode,
    **{f"numpy.{core}.multiarray._reconstruct": _reconstruct for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _scalar for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _frombuffer for core in ("core", "_core")},
}
SYMBOLS = ("numpy.ndarray", *MEANINGS)


class Machine:
    """The stack machine. `run` returns what the program leaves on the stack."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, instructions = self.data, INSTRUCTIONS
        while self.position < len(data):
            code = data[self.position]
            self.position += 1
            if code == STOP:
                return self.pop()
            instruction = instructions.get(code)
            if instruction is None:
                raise ValueError(f"the instruction {bytes([code])!r} is not one of plain data")
            instruction(self)
        raise ValueError("the file ends too early")

    def take(self, count: int) -> bytes:
        """The next `count` bytes of the program."""
        start, self.position = self.position, self.position + count
        if count < 0 or self.position > len(self.data):
            raise ValueError(f"{count} bytes are announced, {len(self.data) - start} are left in the file")
        return self.data[start : self.position]

    def number(self, layout: str) -> Any:
        """The next number of the program."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def line(self) -> str:
        end = self.data.find(b"\n", self.position, self.position + 200)
        if end < 0:
            raise ValueError("a name is longer than any that is allowed here")
        return (self.take(end - self.position + 1)[:-1]).decode("ascii")

    def pop(self) -> Any:
        if not self.stack:
            raise ValueError("an instruction finds nothing to work on")
        return self.stack.pop()

    def since_mark(self) -> list[Any]:
        if not self.marks or self.marks[-1] > len(self.stack):
            raise ValueError("a list of values has no beginning")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(values)))

    def extend(self, values: list[Any]) -> None:
        if not self.stack or type(self.stack[-1]) is not list:
            raise ValueError("values are added to something that is no list")
        self.stack[-1].extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1] if self.stack else None
        if type(target) is not dict or len(values) % 2:
            raise ValueError("keys and values are added to something that is no dictionary")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (str, bytes, int):
                raise ValueError(f"a dictionary key must be text or an integer, got {type(key).__name__}")
            target[key] = value

    def remember(self, index: int) -> None:
        if not self.stack:
            raise ValueError("an instruction finds nothing to work on")
        self.memo[index] = self.stack[-1]

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise ValueError(f"value {index} is used before it exists")
        self.stack.append(self.memo[index])

    def refer(self, module: object, name: object) -> None:
        symbol = f"{module}.{name}"
        if symbol not in SYMBOLS:
            raise ValueError(f"it refers to {symbol[:80]!r}, which plain data never does")
        self.stack.append(Symbol(symbol))

    def refer_from_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise ValueError("a reference must consist of two names")
        self.refer(module, name)

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if type(function) is not Symbol or function.name not in MEANINGS or type(arguments) is not tuple:
            raise ValueError("it tries to call something that is no array")
        self.stack.append(MEANINGS[function.name](*arguments))

    def build(self) -> None:
        state = self.pop()
        target = self.stack[-1] if self.stack else None
        if type(target) is Dtype and type(state) is tuple and len(state) >= 2:
            order = state[1].decode("latin-1") if type(state[1]) is bytes else state[1]
            if order not in ("|", "<", ">", "="):
                raise ValueError(f"unknown byte order {describe(order)}")
            target.order = order
        elif type(target) is Array and type(state) is tuple and len(state) == 5:
            _, shape, dtype, fortran, content = state
            target.value = _array(content, shape, dtype, "F" if fortran is True else "C")
        else:
            raise ValueError("it tries to fill in something that is no array")


STOP = ord(".")


def _push(layout: str) -> Callable[[Machine], None]:
    return lambda m: m.stack.append(m.number(layout))


def _string(length: str, convert: Callable[[bytes], object]) -> Callable[[Machine], None]:
    return lambda m: m.stack.append(convert(m.take(m.number(length))))


def _constant(make: Callable[[], object]) -> Callable[[Machine], None]:
    return lambda m: m.stack.append(make())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


_INSTRUCTIONS: dict[bytes, Callable[[Machine], object]] = {
    b"\x80": lambda m: m.take(1),  # the protocol's number
    b"\x95": lambda m: m.take(8),  # the length of a frame
    b"(": lambda m: m.marks.append(len(m.stack)),
    b"N": _constant(lambda: None),
    b"\x88": _constant(lambda: True),
    b"\x89": _constant(lambda: False),
    b"K": _push("<B"),
    b"M": _push("<H"),
    b"J": _push("<i"),
    b"G": _push(">d"),
    b"\x8a": _string("<B", lambda data: int.from_bytes(data, "little", signed=True)),
    b"U": _string("<B", bytes),
    b"T": _string("<i", bytes),
    b"C": _string("<B", bytes),
    b"B": _string("<I", bytes),
    b"\x8e": _string("<Q", bytes),
    b"\x96": _string("<Q", bytes),
    b"\x8c": _string("<B", _text),
    b"X": _string("<I", _text),
    b"\x8d": _string("<Q", _text),
    b"}": _constant(dict),
    b"]": _constant(list),
    b")": _constant(tuple),
    b"t": lambda m: m.stack.append(tuple(m.since_mark())),
    b"\x85": lambda m: m.tuple_of(1),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"a": lambda m: m.extend([m.pop()]),
    b"e": lambda m: m.extend(m.since_mark()),
    b"s": lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    b"u": lambda m: m.set_items(m.since_mark()),
    b"q": lambda m: m.remember(m.number("<B")),
    b"r": lambda m: m.remember(m.number("<I")),
    b"\x94": lambda m: m.remember(len(m.memo)),
    b"h": lambda m: m.recall(m.number("<B")),
    b"j": lambda m: m.recall(m.number("<I")),
    b"c": lambda m: m.refer(m.line(), m.line()),
    b"\x93": Machine.refer_from_stack,
    b"R": Machine.reduce,
    b"b": Machine.build,
}
INSTRUCTIONS = {code[0]: instruction for code, instruction in _INSTRUCTIONS.items()}


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary that a file holds: integers, strings, lists, and arrays of integers (read-only). Keys are text.

    Python 2's strings come as bytes. Whatever is wrong is a ValueError that names the file and the place in it.
    """
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"cannot read {path}: expected at most {MAX_BYTES} bytes, found {path.stat().st_size}")
    machine = Machine(path.read_bytes())
    try:
        value = machine.run()
        if type(value) is not dict:
            raise ValueError(f"expected a dictionary, found {type(value).__name__}")
        return {_key(key): _finished(item) for key, item in value.items()}
    except (ValueError, OverflowError, MemoryError) as error:
        raise ValueError(f"cannot read {path} as a pickle of plain data: byte {machine.position}: {error}") from error


def _key(key: str | bytes | int) -> str:
    return key.decode("ascii") if isinstance(key, bytes) else str(key)


def _finished(value: Any) -> Any:
    if type(value) is Array:
        if value.value is None:
            raise ValueError("an array has no content")
        return value.value
    return value
