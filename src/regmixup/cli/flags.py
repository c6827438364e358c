"""Flags from a dataclass's docstring: what it says about each field becomes that flag's help."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Annotated, Any, get_type_hints

from tyro.conf import arg


def with_help(instance: Any) -> Any:
    """The instance as one of a class of the same fields, whose flags explain themselves and whose text is short."""
    cls = type(instance)
    hints, texts = get_type_hints(cls), field_texts(cls)
    fields = [
        (
            f.name,
            Annotated[hints[f.name], arg(help=texts.get(f.name, ""))],
            dataclasses.field(default=getattr(instance, f.name)),
        )
        for f in dataclasses.fields(cls)
    ]
    flags = dataclasses.make_dataclass(cls.__name__, fields, frozen=True, kw_only=True)
    flags.__doc__ = inspect.getdoc(cls).partition("\n\n")[0]  # type: ignore[union-attr]
    return flags()


def without_help(parsed: Any, cls: type[Any]) -> Any:
    """The inverse: an instance of `cls` with the parsed values."""
    return cls(**{f.name: getattr(parsed, f.name) for f in dataclasses.fields(cls)})


def field_texts(cls: type[Any]) -> dict[str, str]:
    """What the docstrings of a dataclass and its bases say about its fields.

    A field is explained in a line that begins with its name, alone, with others or in an inequality, and a colon;
    deeper lines go on.

    >>> from regmixup.networks.constraints import StableRank
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
