"""Objectives: batch -> loss. One file per idea; the file name is the objective's name on the command line.

Every module of this folder that defines an `Objective` of the module's own name joins the registry by being here; a
leading underscore marks what the modules share.
"""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from importlib import import_module

from regmixup import plugins
from regmixup.names import check_name
from regmixup.objectives._base import Objective, has_loss


def _discover() -> dict[str, type[Objective]]:
    classes: dict[str, type[Objective]] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("_"):
            continue
        for cls in vars(import_module(f"{__name__}.{module.name}")).values():
            named_so = isinstance(cls, type) and cls.__name__.lower() == module.name.replace("_", "")
            if named_so and issubclass(cls, Objective):
                classes[module.name] = cls
    return classes


_BUILT_IN = _discover()
OBJECTIVES = dict(_BUILT_IN)

__all__ = ["OBJECTIVES", "Objective", "build", "has_loss", "name_of", "register"]


def build(name: str, **fields: object) -> Objective:
    """Return an objective by its command-line name: build("regmixup", alpha=10)."""
    plugins.load_if_unknown(name, OBJECTIVES)
    cls = OBJECTIVES[check_name("objective", name, OBJECTIVES)]
    for key in fields:
        check_name(f"field of {cls.__name__}", key, [field.name for field in dataclasses.fields(cls)])
    return cls(**fields)


def name_of(objective: Objective) -> str:
    """Return the command-line name of an objective, or its class's name if it is not in the registry."""
    names = {cls: name for name, cls in OBJECTIVES.items()}
    return names.get(type(objective), type(objective).__name__.lower())


def register(cls: type[Objective], *, version: str = "") -> type[Objective]:
    """Make an objective of your own known by name; also as a decorator above `@dataclass`. See `regmixup.plugins`.

    The name is that of the class in lower case, words joined by underscores: FocalLoss becomes focal_loss. A stored
    configuration must be able to name the class, and to record all that its instances are made of.
    """
    if not (isinstance(cls, type) and issubclass(cls, Objective)):
        raise ValueError(f"cls must be a subclass of Objective, got {cls!r}")
    if any(built_in.__name__ == cls.__name__ and built_in is not cls for built_in in _BUILT_IN.values()):
        raise ValueError(f"class of an objective must have a new name, got {cls.__name__}")
    if "__init__" in vars(cls) and "__dataclass_fields__" not in vars(cls):
        raise ValueError(
            "an objective must be a dataclass, whose fields are recorded, "
            f"got {cls.__name__} with an __init__ of its own: write @dataclass(frozen=True, kw_only=True) above it"
        )
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()
    plugins.record("objective", name, OBJECTIVES, version=version)
    OBJECTIVES[name] = cls
    return cls
