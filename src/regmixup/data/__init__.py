"""Datasets by name. Nothing is ever downloaded unasked. Importing this imports no torch.

`catalogue` says what datasets there are, one of the `readers` (or `folders`) reads one from its official files, and
`reading.load` puts the two together.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regmixup.data.catalogue import FAMILIES, names, register
from regmixup.data.reading import load

if TYPE_CHECKING:
    from regmixup.data.corruptions import corrupt
    from regmixup.data.images import from_dataset

__all__ = ["FAMILIES", "corrupt", "from_dataset", "load", "names", "register"]

_PLACES = {"corrupt": "corruptions", "from_dataset": "images"}


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first used."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
