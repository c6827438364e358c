"""Flags from a dataclass's docstring: what it says about each field becomes that flag's help."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Annotated, Any, get_type_hints

from tyro.conf import arg


def with_help(instance: Any) -> Any:
    """Return the instance as one of a class of the same fields, whose flags have help texts and whose text is short.

    The field `loss` of an objective is left out: it is no value of one flag, but chosen by name with --loss.
    """
    cls = type(instance)
    hints, texts = get_type_hints(cls), field_texts(cls)
    fields = []
    for f in dataclasses.fields(cls):
        value, hint = getattr(instance, f.name), hints[f.name]
        if f.name == "loss":
            continue
        if dataclasses.is_dataclass(value):
            value = with_help(value)
            hint = type(value)
        fields.append((f.name, Annotated[hint, arg(help=texts.get(f.name, ""))], dataclasses.field(default=value)))
    flags = dataclasses.make_dataclass(cls.__name__, fields, frozen=True, kw_only=True)
    flags.__doc__ = inspect.getdoc(cls).partition("\n\n")[0]  # type: ignore[union-attr]
    return flags()


def without_help(parsed: Any, instance: Any) -> Any:
    """Return the instance with the parsed values: the inverse of `with_help`."""
    values = {f.name: getattr(parsed, f.name) for f in dataclasses.fields(parsed)}
    for name, value in values.items():
        if dataclasses.is_dataclass(value):
            values[name] = without_help(value, getattr(instance, name))
    return dataclasses.replace(instance, **values)


def field_texts(cls: type[Any]) -> dict[str, str]:
    """What the docstrings of a dataclass and its bases say about its fields.

    A field is explained in a line that begins with its name, alone, with others or in an inequality, and a colon;
    deeper lines go on.

    >>> from regmixup.networks.stable_rank import StableRank
    >>> field_texts(StableRank)["warmup"]
    'of the power iteration, per forward pass in training mode and at construction.'
    """
    texts: dict[str, str] = {}
    for base in cls.__mro__:
        if not dataclasses.is_dataclass(base) or not base.__doc__:
            continue
        explained = (inspect.getdoc(base) or "").partition("\n\n")[2]
        for head, text in re.findall(r"^([^\n:`\"]{1,60}): (.*(?:\n +\S.*)*)", explained, re.MULTILINE):
            names = re.findall(r"[a-z_]+", head)
            for field in dataclasses.fields(cls):
                if field.name in names:
                    texts.setdefault(field.name, " ".join(text.split()))
    return texts
