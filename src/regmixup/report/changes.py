"""How a run's training differs from the recipe that it is named after."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from regmixup import methods, recipes

# Resolved for the device at hand, and so no choice of whoever trained.
_IGNORED = ("precision",)


def changed_fields(config: Mapping[str, Any], *, recipe: str, method: str) -> list[str]:
    """What a configuration, as config.json holds it, changes in a recipe with a method's own values.

    >>> changed_fields({"epochs": 30, "lr": 0.1}, recipe="cifar10-wrn28-10", method="dnn")
    ['epochs 30 instead of 350']
    >>> changed_fields({"shards": 1}, recipe="cifar10-wrn28-10", method="dnn")
    []
    >>> changed_fields({"milestones": []}, recipe="cifar10-wrn28-10", method="dnn")
    ['milestones none instead of 150, 250']
    """
    own = methods.get(method.partition("(")[0]).at(recipe).train
    wanted = {**dataclasses.asdict(recipes.get(recipe)), **own}
    wanted["shards"] = wanted["shards"] or 1  # the recipes leave it to the number of processes; the paper had one
    return [
        f"{name} {_shown(config[name])} instead of {_shown(value)}"
        for name, value in wanted.items()
        if name in config and name not in _IGNORED and _shown(config[name]) != _shown(value)
    ]


def _shown(value: Any) -> str:
    """JSON has lists where a recipe has tuples."""
    return (", ".join(map(str, value)) or "none") if isinstance(value, (list, tuple)) else str(value)
