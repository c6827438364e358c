"""From words to a verb's dataclass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import tyro
from tyro.conf import FlagCreatePairsOff

T = TypeVar("T")

Switch = FlagCreatePairsOff[bool]
"""A flag that is off unless given."""


def parse(cls: type[T], verb: str, args: Sequence[str], default: T | None = None) -> T:
    """Parse the words after the verb; --help and wrong flags end the program here."""
    program = f"regmixup {verb}"
    if default is None:
        return tyro.cli(cls, args=args, prog=program)
    return tyro.cli(cls, args=args, prog=program, default=default)
