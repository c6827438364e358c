"""Check configurations (frozen dataclasses), encode them as JSON, decode them and compute their fingerprints.

A configuration is one hashable value. Its fingerprint is the SHA-256 of its canonical JSON together with
`NUMERICS_VERSION`, which is raised whenever a change of this package changes what a configuration computes. A field
that was added later (`introduced`) stays out of the fingerprint as long as it has the value that old runs had.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
import numbers
from collections.abc import Callable
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from regmixup.names import check_name, unknown

NUMERICS_VERSION = 2

T = TypeVar("T")


def check_number(
    name: str,
    value: Any,
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
    if (
        not (_is_number(value) and math.isfinite(value))
        or (above is not None and value <= above)
        or (least is not None and value < least)
        or (below is not None and value >= below)
        or (most is not None and value > most)
    ):
        limits = {">": above, ">=": least, "<": below, "<=": most}
        contract = " and".join(f" {sign} {bound:g}" for sign, bound in limits.items() if bound is not None)
        raise ValueError(f"{name} must be a finite number{contract}, got {value!r}")


def check_count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise unless `value` is an integer of at least `least`."""
    if not _is_number(value) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")


def _is_number(value: Any) -> bool:
    """Return whether it is a number of Python's or NumPy's, but not True or False."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


class Bounds(partial[None]):
    """A check of a number with its bounds, such as Bounds(check_number, above=0). The reference shows the bounds."""

    def __repr__(self) -> str:
        return f"Bounds({', '.join(f'{word}={bound:g}' for word, bound in self.keywords.items())})"


Number = Annotated[float, Bounds(check_number)]
Positive = Annotated[float, Bounds(check_number, above=0)]
NotNegative = Annotated[float, Bounds(check_number, least=0)]
Probability = Annotated[float, Bounds(check_number, least=0, most=1)]
Share = Annotated[float, Bounds(check_number, least=0, below=1)]
PositiveShare = Annotated[float, Bounds(check_number, above=0, most=1)]
InnerShare = Annotated[float, Bounds(check_number, above=0, below=1)]
Count = Annotated[int, Bounds(check_count, least=1)]
CountOrZero = Annotated[int, Bounds(check_count, least=0)]
"""Types of fields that hold numbers within bounds, or tuples of such. `check_fields` checks any type annotated so."""


def _bounded_hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls, include_extras=True)
    except NameError:  # a class of the user's own with a type that is imported for type checkers alone
        return {}


# Slow, and a study has hundreds of configurations.
_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)
_hints_with_bounds: Callable[[type], dict[str, Any]] = cache(_bounded_hints)


def check_fields(config: Any) -> None:
    """Raise for a field of a dataclass that is none of the choices of its `Literal`, or has a number out of its bounds.

    Fields that the constructor does not take are not checked: they may be set later.

    >>> Noise = dataclasses.make_dataclass("Noise", [("sigma", Positive | None)])
    >>> check_fields(Noise(None))
    >>> check_fields(Noise(0.0))
    Traceback (most recent call last):
    ValueError: sigma must be a finite number > 0, got 0.0
    """
    hints = _hints_with_bounds(type(config))
    for f in dataclasses.fields(config):
        if f.init and f.name in hints:
            _check_field(f.name, getattr(config, f.name), hints[f.name])


def _check_field(name: str, value: Any, hint: Any) -> None:
    if hint is bool and not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    options = _options(hint)
    choices = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if value in choices or (value is None and NoneType in options):
        return
    if get_origin(hint) is Literal:
        raise unknown(name, value, map(str, choices))
    for option in options:
        if get_origin(option) is tuple and get_origin(get_args(option)[0]) is Annotated:
            if not isinstance(value, tuple | list):
                raise ValueError(f"{name} must be a tuple of numbers, got {value!r}")
            for number in value:
                _check_field(f"each number of {name}", number, get_args(option)[0])
        for note in getattr(option, "__metadata__", ()):
            if isinstance(note, Bounds):
                note(name, value)


class Checked:
    """Base of dataclasses that `check_fields` checks when one is made."""

    def __post_init__(self) -> None:
        check_fields(self)


def introduced(default: Any, *, identity: Callable[[Any], Any] | None = None) -> Any:
    """Return a dataclass field added to a class that has runs already. default: what those runs did.

    identity: a function from the field's value to what enters the fingerprint in its place; default: the value.

    While the field has this value it does not enter the fingerprint, so that no old run is orphaned. The mark stays
    when the field's default changes later: then give the new one with `dataclasses.field` and the same metadata.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Old:
    ...     lr: float
    >>> New = dataclasses.make_dataclass("Old", [("lr", float), ("clip", float, introduced(0.0))], frozen=True)
    >>> fingerprint(New(0.1)) == fingerprint(Old(0.1)) != fingerprint(New(0.1, clip=1.0))
    True
    """
    metadata = {"introduced": default} | ({"identity": identity} if identity is not None else {})
    return dataclasses.field(default=default, metadata=metadata)


def values_of(config: Any, cls: type | None = None) -> dict[str, Any]:
    """Return the fields of a dataclass by name, as they are. cls: a base class, to return its fields alone."""
    return {f.name: getattr(config, f.name) for f in dataclasses.fields(cls or config)}


def encode(config: Any) -> dict[str, Any]:
    """Return a dataclass as plain JSON values; `kind` records its class. Integers in float fields become floats."""
    return _encode(config, "config", type(config), for_fingerprint=False)


def _encode(value: Any, name: str, hint: Any, *, for_fingerprint: bool) -> Any:
    """Encode the value of a field. for_fingerprint: see `introduced`, for fields that are left out or replaced."""
    families: tuple[Any, ...] = tuple(option for option in _options(hint) if dataclasses.is_dataclass(option))
    if dataclasses.is_dataclass(value) and (not families or isinstance(value, families)):
        return {"kind": type(value).__name__, **_encode_fields(value, for_fingerprint=for_fingerprint)}
    if isinstance(value, tuple):
        inner = get_args(hint)[0] if get_args(hint) else Any
        return [_encode(member, name, inner, for_fingerprint=for_fingerprint) for member in value]
    if _is_number(value):
        integer = isinstance(value, numbers.Integral) and not (hint is float or float in get_args(hint))
        return int(value) if integer else float(value)
    if value is None or isinstance(value, str | bool | dict):
        return value
    kinds = ["number", "text", "bool", "tuple of these", *(family.__name__ for family in families)]
    raise ValueError(f"{name} must be a {', '.join(kinds)} or None to be recorded in a configuration, got {value!r}")


def _encode_fields(config: Any, *, for_fingerprint: bool) -> dict[str, Any]:
    hints, encoded = _hints(type(config)), {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if for_fingerprint and "introduced" in f.metadata and value == f.metadata["introduced"]:
            continue
        if for_fingerprint and "identity" in f.metadata:
            value = f.metadata["identity"](value)
        encoded[f.name] = _encode(value, f.name, hints[f.name], for_fingerprint=for_fingerprint)
    return encoded


def decode(base: type[T], values: dict[str, Any], where: str = "config") -> T:
    """Return what `encode` encoded: an instance of `base` or of the subclass named by `kind`.

    Unknown keys, missing ones and values of another type than the field declares are errors that name `where`.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be a table of {base.__name__}, got {values!r}")
    values = dict(values)
    # Of two classes with one name the last counts: ours, and not the user's.
    family = sorted(_family(base), key=lambda cls: cls.__module__.startswith("regmixup."))
    classes = {cls.__name__: cls for cls in family if not inspect.isabstract(cls)}
    cls = classes[check_name(f"kind in {where}", values.pop("kind", base.__name__), classes)]
    hints, fields = _hints(cls), dataclasses.fields(cls)  # type: ignore[arg-type]
    _remove_retired(values, getattr(cls, "retired", {}), where)
    for key in values:
        check_name(f"field of {cls.__name__} in {where}", key, [f.name for f in fields])
    unset = dataclasses.MISSING
    required = [f.name for f in fields if f.default is unset and f.default_factory is unset]
    if absent := [name for name in required if name not in values]:
        raise ValueError(f"{where} must have the fields {', '.join(required)}, got no {', '.join(absent)}")
    return cls(**{key: _decode(value, hints[key], f"{where}.{key}") for key, value in values.items()})


def _remove_retired(values: dict[str, Any], retired: dict[str, Any], where: str) -> None:
    """Remove fields that left a class, whose name and introductory value its `retired` holds, from stored values."""
    for name in retired.keys() & values.keys():
        if values.pop(name) != retired[name]:
            raise ValueError(f"{where}.{name} must be {retired[name]!r}: this package no longer has that feature")


def _decode(value: Any, hint: Any, where: str) -> Any:
    """Return a JSON or TOML value as the type that a field declares; choices and richer types check themselves."""
    for option in _options(hint):
        kind = get_origin(option) or option
        if dataclasses.is_dataclass(kind):
            if isinstance(value, dict):
                return decode(kind, value, where)  # type: ignore[arg-type]
        elif kind is tuple:
            if isinstance(value, list):
                return tuple(_decode(member, get_args(option)[0], where) for member in value)
        elif kind in (int, float):
            if _is_number(value) and (kind is float or isinstance(value, numbers.Integral)):
                return value
        elif kind not in (str, bool, dict, NoneType) or isinstance(value, kind):
            return value
    raise ValueError(f"{where} must be {inspect.formatannotation(hint)}, got {value!r}")


def _options(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _family(base: type[T]) -> list[type[T]]:
    return [base, *(cls for sub in base.__subclasses__() for cls in _family(sub))]


def fingerprint(config: Any) -> str:
    """Return 64 hexadecimal digits that identify what this configuration computes.

    An object keeps them: listing a large study asks for those of every run a dozen times.
    """
    if "_fingerprint" not in config.__dict__:
        encoded = _encode(config, "config", type(config), for_fingerprint=True)
        canonical = json.dumps({"numerics": NUMERICS_VERSION, "config": encoded}, sort_keys=True)
        config.__dict__["_fingerprint"] = hashlib.sha256(canonical.encode()).hexdigest()
    return config.__dict__["_fingerprint"]
