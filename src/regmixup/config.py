"""Configurations are frozen dataclasses. This file checks them, writes them as JSON, reads them back and names them.

A configuration is one hashable value. Its fingerprint is the SHA-256 of its canonical JSON together with
`NUMERICS_VERSION`, which is raised whenever a change of this package changes what a configuration computes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
import numbers
import operator
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from regmixup.names import check_name, unknown

NUMERICS_VERSION = 1

T = TypeVar("T")


def check_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> None:
    """Raise unless `value` is a finite number within the bounds: > above, >= least, < below, <= most.

    >>> check_number("alpha", -1, above=0)
    Traceback (most recent call last):
    ValueError: alpha must be a finite number > 0, got -1
    """
    limits = {
        ">": (above, operator.gt),
        ">=": (least, operator.ge),
        "<": (below, operator.lt),
        "<=": (most, operator.le),
    }
    bounds = [(sign, bound, holds) for sign, (bound, holds) in limits.items() if bound is not None]
    if _is_number(value) and abs(value) < math.inf and all(holds(value, bound) for _, bound, holds in bounds):  # type: ignore[arg-type]
        return
    contract = " and".join(f" {sign} {bound:g}" for sign, bound, _ in bounds)
    raise ValueError(f"{name} must be a finite number{contract}, got {value!r}")


def _is_number(value: Any) -> bool:
    """Python's and NumPy's numbers, but not True and False."""
    return value is not True and value is not False and isinstance(value, numbers.Real)


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Raise unless `value` is an integer of at least `least`."""
    if not (_is_number(value) and isinstance(value, numbers.Integral) and int(value) >= least):
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")


def check_choices(config: object) -> None:
    """Raise for a `Literal` field of a dataclass that holds something else."""
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal:
            value = getattr(config, name)
            if value not in get_args(hint):
                raise unknown(name, value, map(str, get_args(hint)))


def encode(config: Any) -> dict[str, Any]:
    """A dataclass as plain JSON values; `kind` records its class. Integers in float fields become floats."""
    hints = get_type_hints(type(config))
    values = {f.name: _encode(getattr(config, f.name), hints[f.name]) for f in dataclasses.fields(config)}
    return {"kind": type(config).__name__, **values}


def _encode(value: Any, hint: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return encode(value)
    if isinstance(value, tuple):
        inner = get_args(hint)[0] if get_args(hint) else Any
        return [_encode(v, inner) for v in value]
    if _is_number(value):
        whole = isinstance(value, numbers.Integral) and not (hint is float or float in get_args(hint))
        return int(value) if whole else float(value)
    return value


def decode(base: type[T], values: dict[str, Any], where: str = "config") -> T:
    """The inverse of `encode`: an instance of `base` or of the subclass named by `kind`. Unknown keys are errors."""
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a table of {base.__name__} fields, got {values!r}")
    values = dict(values)
    classes = {cls.__name__: cls for cls in _family(base) if not inspect.isabstract(cls)}
    cls = classes[check_name(f"kind in {where}", values.pop("kind", base.__name__), classes)]
    hints = get_type_hints(cls)
    names = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in names:
            raise unknown(f"field of {cls.__name__} in {where}", key, names)
    try:
        return cls(**{key: _decode(value, hints[key], f"{where}.{key}") for key, value in values.items()})
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def _decode(value: Any, hint: Any, where: str) -> Any:
    options = get_args(hint) if get_origin(hint) not in (tuple, Literal) else ()
    for option in (hint, *options):
        if dataclasses.is_dataclass(option) and isinstance(value, dict):
            return decode(option, value, where)  # type: ignore[arg-type]
        if get_origin(option) is tuple and isinstance(value, list):
            return tuple(_decode(v, get_args(option)[0], where) for v in value)
    _check_type(value, hint, where)
    return value


def _check_type(value: Any, hint: Any, where: str) -> None:
    """Text, numbers and switches must be what the field declares; richer types check themselves."""
    fits = {
        str: lambda: isinstance(value, str),
        bool: lambda: isinstance(value, bool),
        int: lambda: _is_number(value) and isinstance(value, numbers.Integral),
        float: lambda: _is_number(value),
    }
    if hint in fits and not fits[hint]():
        raise ValueError(f"{where} must be {hint.__name__}, got {value!r}")


def _family(base: type[T]) -> list[type[T]]:
    return [base, *(cls for sub in base.__subclasses__() for cls in _family(sub))]


def fingerprint(config: Any) -> str:
    """64 hexadecimal digits that name what this configuration computes."""
    canonical = json.dumps({"numerics": NUMERICS_VERSION, "config": encode(config)}, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
