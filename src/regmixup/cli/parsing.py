"""Parse the words after a verb into its dataclass: fields are flags, and attribute docstrings are their help.

A positional field has a metavar, because errors else call it by its type: PATH for PHOTOS.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import tyro
from tyro.conf import FlagCreatePairsOff
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from regmixup.config import values_of

REGISTRY = ConstructorRegistry()
T = TypeVar("T")

Switch = FlagCreatePairsOff[bool]
"""A flag that is off unless given."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The flags of every verb that trains: where its data is and what it runs on."""

    root: Path | None = None
    """Folder with the official files of the datasets; embedded datasets need none."""
    device: str | None = None
    """Device, for example cpu or cuda:0. Default: the accelerator if there is one."""
    workers: int | None = None
    """Number of processes that decode image files. Default: one per core, at most 4. Datasets in memory need none."""


def parse(cls: type[T], verb: str, args: Sequence[str], default: T | None = None) -> T:
    """Parse the words after the verb, with `~` in a path expanded. Wrong flags exit here."""
    given: dict[str, Any] = {} if default is None else {"default": default}
    with REGISTRY:
        parsed: Any = tyro.cli(cls, args=args, prog=f"regmixup {verb}", description=inspect.getdoc(cls), **given)
    flags = [word.partition("=")[0].replace("_", "-") for word in args if word.startswith("--")]
    lists = {*_lists(parsed)}
    for flag in flags:
        # tyro keeps the last of a repeated flag, which would silently drop the values listed first.
        if flags.count(flag) > 1 and flag.removeprefix("--").rpartition(".")[2] in lists:
            raise ValueError(f"{flag} must be given once, with all its values after it, got it more than once")
    return replace(parsed, **{f.name: _expanded(getattr(parsed, f.name)) for f in fields(parsed)})


def _lists(parsed: object) -> Iterator[str]:
    """Yield the fields that take several values, also those of parts such as a loss, as flags write them."""
    for name, value in values_of(parsed).items():
        if is_dataclass(value):
            yield from _lists(value)
        elif isinstance(value, tuple):
            yield name.replace("_", "-")


@REGISTRY.primitive_rule
def _number_or_none(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Parse a number or None as tyro does, but for its error, which shows Python's types."""
    kinds = {getattr(option, "__origin__", option) for option in get_args(info.type)}
    if kinds not in ({int, type(None)}, {float, type(None)}):
        return None
    kind = int if int in kinds else float
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{None}}|{kind.__name__.upper()}",
        instance_from_str=lambda words: None if words == ["None"] else kind(words[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


def check_file(flag: str, path: Path | None, ending: str) -> None:
    """Check before the work that a file can be written; by its ending, so that no image or .npz file is replaced."""
    from regmixup.storage import check_writable  # not at start-up: `list` and `finetune` write no such file

    if path is None:
        return
    if path.suffix.lower() != ending:
        raise ValueError(f"{flag} must name a file that ends in {ending}, the only format it writes, got {path}")
    check_writable(path)


def _expanded(value: Any) -> Any:
    """Expand `~`, as the shell does for `--runs ~/x` but not for `--runs=~/x`."""
    if isinstance(value, tuple):
        return tuple(map(_expanded, value))
    return value.expanduser() if isinstance(value, Path) else value
