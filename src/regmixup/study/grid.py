"""Grids: the values of a method in a study file, fixed or tried in turn.

    [grid.regmixup]
    objective.alpha = [10, 20]                                      a list: each value in turn
    objective.eta = [0.1, 1, 2]
    "objective.first.eta, objective.second.eta" = [0.1, 1, 3]       several fields that take the same value
    posthoc.predictive = "mean_field"                               no list: the same for all points

All combinations are points. Tables in double brackets, [[grid.regmixup]], are grids of their own, one after the other:
values to try one at a time. An empty one is the method as it is.

Fields are those of TrainConfig, its objective, constraint and head, and the method's posthoc map, whose `name` may be
set, too, and is set first. A loss and a transform are set by name: objective.loss = ["logitnorm"]. A value that is
itself a list goes in a list: milestones = [[60, 120, 160]].
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from regmixup.methods import Spec
from regmixup.names import check_name, shown

if TYPE_CHECKING:
    from regmixup.posthoc import Posthoc
    from regmixup.training.config import TrainConfig


@dataclass(frozen=True)
class Point:
    """One combination of the values of a grid; by default, that of a method without a grid.

    varied: the values that stand in lists, by short names. fields: all fields that are set, varied or not.
    trains: a field of the training varies, not only fields of the posthoc map.
    corner: each value is the first of its list or, of the first two lists, the last. Smoke scale has corners only.
    """

    varied: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    trains: bool = False
    corner: bool = True

    def __str__(self) -> str:
        """Return "(alpha=10, eta=1)", or "" where nothing varies."""
        parts = [f"{name}={shown(value)}" for name, value in self.varied.items()]
        return f"({', '.join(parts)})" if parts else ""


def grid_points(table: Mapping[str, Any]) -> Iterator[Point]:
    """Yield every combination of a table of a study file, the last list fastest.

    >>> [(str(point), point.fields) for point in grid_points({"objective": {"alpha": [10], "eta": 1}})]
    [('(alpha=10)', {'objective.eta': 1, 'objective.alpha': 10})]
    """
    fixed: dict[str, Any] = {}
    axes: list[tuple[list[str], list[Any]]] = []
    for key, values in _flat(table):
        names = [name.strip() for name in key.split(",")]
        if isinstance(values, list):
            check_distinct(f"grid over {key}", values)
            axes.append((names, [as_tuple(value) for value in values]))
        else:
            fixed |= dict.fromkeys(names, values)
    short_names = _short_names([names[0] for names, _ in axes])
    varied = [name for names, _ in axes for name in names]
    ends = [(values[0], values[-1]) for _, values in axes[:2]] + [(values[0],) for _, values in axes[2:]]
    for combination in product(*(values for _, values in axes)):
        fields = dict(fixed)
        for (names, _), value in zip(axes, combination, strict=True):
            fields |= dict.fromkeys(names, value)
        yield Point(
            varied=dict(zip(short_names, combination, strict=True)),
            fields=fields,
            trains=any(not name.startswith("posthoc.") for name in varied),
            corner=all(value in corner_values for value, corner_values in zip(combination, ends, strict=True)),
        )


def adjust(
    config: TrainConfig, posthoc: Posthoc | None, changes: Mapping[str, Any]
) -> tuple[TrainConfig, Posthoc | None]:
    """Return the configuration and the posthoc map with dotted fields changed: objective.alpha, posthoc.factor."""
    # The map's name first: the other fields belong to the map that it names.
    for name, value in sorted(changes.items(), key=lambda change: change[0] != "posthoc.name"):
        if name == "posthoc.name":
            from regmixup.posthoc import build

            posthoc = build(str(value))
        elif name.startswith("posthoc."):
            posthoc = _set(posthoc, name.removeprefix("posthoc."), value, "posthoc")
        else:
            config = _set(config, name, value, "TrainConfig")
    return config, posthoc


def check_distinct(name: str, values: Sequence[Any]) -> None:
    """Raise if a list of a study file is empty or repeats itself."""
    if not values or any(value in values[:index] for index, value in enumerate(values)):
        raise ValueError(f"{name} must be one or more, without repetition, got {list(values)}")


def as_tuple(value: Any) -> Any:
    """Return a list of TOML as the tuple that a configuration holds; any other value as it is."""
    return tuple(value) if isinstance(value, list | tuple) else value


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested tables to dotted keys."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _short_names(fields: Sequence[str]) -> list[str]:
    """Name each field by its last word, or by more of it where that is not unique.

    >>> _short_names(["objective.first.alpha", "objective.second.alpha", "objective.eta"])
    ['first.alpha', 'second.alpha', 'eta']
    """
    last = [name.rpartition(".")[2] for name in fields]
    longer = [re.sub(r"^(objective|constraint|head|posthoc)\.", "", name) for name in fields]
    return [name if last.count(name) == 1 else longer[index] for index, name in enumerate(last)]


def _set(owner: Any, path: str, value: Any, where: str) -> Any:
    """Return a frozen dataclass with one field, or a field of a field, changed; its own checks apply."""
    if not dataclasses.is_dataclass(owner):
        raise ValueError(f"grid names {where}.{path}, but {where} is {owner!r} here")
    name, _, inner_path = path.partition(".")
    if path in ("loss", "transform") and isinstance(value, str):
        from regmixup.training.config import part_of

        value = part_of(path, Spec(value))
    check_name(f"field of {type(owner).__name__} in grid", name, [f.name for f in dataclasses.fields(owner)])
    changed = _set(getattr(owner, name), inner_path, value, name) if inner_path else value
    return dataclasses.replace(owner, **{name: changed})  # type: ignore[type-var]
