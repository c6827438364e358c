"""Grids: the values of a method in a study file, fixed or tried in turn.

    [grid.regmixup]
    objective.alpha = [10, 20]                                      a list: each value in turn
    objective.eta = [0.1, 1, 2]
    "objective.first.eta, objective.second.eta" = [0.1, 1, 3]       several fields that change together
    posthoc.predictive = "mean_field"                               no list: the same for all points

All combinations are points. Tables in double brackets, [[grid.regmixup]], are grids of their own, one after the other:
values to try one at a time. An empty one is the method as it is.

Fields are those of TrainConfig, its objective, constraint and head, and the method's posthoc map, whose `name` may be
set, too, and is set first. A value that is itself a list goes in a list: milestones = [[60, 120, 160]].
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from regmixup.names import check_name, shown

if TYPE_CHECKING:
    from regmixup.posthoc import Posthoc
    from regmixup.training.config import TrainConfig


@dataclass(frozen=True)
class Axis:
    """Fields that take the same values in turn. name: the short name in labels."""

    fields: tuple[str, ...]
    values: tuple[Any, ...]
    name: str

    @property
    def of_posthoc(self) -> bool:
        """Return whether only posthoc maps depend on it, and no training."""
        return all(field.startswith("posthoc.") for field in self.fields)


@dataclass(frozen=True)
class Point:
    """One value for every axis."""

    values: tuple[tuple[Axis, Any], ...] = ()

    def __str__(self) -> str:
        """Return "(alpha=10, eta=1)", or "" for a method without a grid."""
        parts = [f"{axis.name}={shown(value)}" for axis, value in self.values]
        return f"({', '.join(parts)})" if parts else ""

    def named(self) -> dict[str, Any]:
        """Return the values by the names of their axes."""
        return {axis.name: value for axis, value in self.values}

    def fields(self) -> dict[str, Any]:
        """Return the values by the fields that take them."""
        return {field: value for axis, value in self.values for field in axis.fields}

    def is_corner(self) -> bool:
        """Return whether it has an end value on the first two axes and the first value on all others."""
        return all(
            value == axis.values[0] or (place < 2 and value == axis.values[-1])
            for place, (axis, value) in enumerate(self.values)
        )


@dataclass(frozen=True)
class ValueGrid:
    """One table of a method's grid. axes: the fields that vary. fixed: fields with one value."""

    axes: tuple[Axis, ...] = ()
    fixed: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> ValueGrid:
        """Read a section of a study file.

        >>> grid = ValueGrid.of({"objective": {"alpha": [10, 20], "eta": 1}})
        >>> [str(point) for point in grid.points()], grid.fixed
        (['(alpha=10)', '(alpha=20)'], (('objective.eta', 1),))
        """
        entries = {tuple(part.strip() for part in key.split(",")): value for key, value in _flat(table)}
        varied = {fields: values for fields, values in entries.items() if isinstance(values, list)}
        names = _short_names(varied)
        for fields, values in varied.items():
            check_distinct(f"grid over {names[fields]}", values)
        axes = tuple(Axis(fields, tuple(map(as_tuple, values)), names[fields]) for fields, values in varied.items())
        fixed = [(field, value) for fields, value in entries.items() if fields not in varied for field in fields]
        return cls(axes, tuple(fixed))

    @property
    def fields(self) -> list[str]:
        """Return every field that is set, varied or not."""
        return [*(field for axis in self.axes for field in axis.fields), *(field for field, _ in self.fixed)]

    def points(self) -> Iterator[Point]:
        """Yield every combination, the last axis fastest."""
        for values in product(*(axis.values for axis in self.axes)):
            yield Point(tuple(zip(self.axes, values, strict=True)))

    def changes(self, point: Point) -> dict[str, Any]:
        """Return every field that a point sets, with its value."""
        return dict(self.fixed) | point.fields()


def adjust(
    config: TrainConfig, posthoc: Posthoc | None, changes: Mapping[str, Any]
) -> tuple[TrainConfig, Posthoc | None]:
    """Return the configuration and the posthoc map with dotted fields changed: objective.alpha, posthoc.factor."""
    # The map's name first: the other fields belong to the map that it names.
    for field, value in sorted(changes.items(), key=lambda change: change[0] != "posthoc.name"):
        if field == "posthoc.name":
            from regmixup.posthoc import build

            posthoc = build(str(value))
        elif field.startswith("posthoc."):
            posthoc = _set(posthoc, field.removeprefix("posthoc."), value, "posthoc")
        else:
            config = _set(config, field, value, "TrainConfig")
    return config, posthoc


def check_distinct(name: str, values: Sequence[Any]) -> None:
    """Raise if a list of a study file is empty or repeats itself."""
    if not values or any(value in values[:index] for index, value in enumerate(values)):
        raise ValueError(f"{name} must be one or more, without repetition, got {list(values)}")


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested tables to dotted keys."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def as_tuple(value: Any) -> Any:
    """Return a list of TOML as the tuple that a configuration holds; any other value as it is."""
    return tuple(value) if isinstance(value, list | tuple) else value


def _short_names(axes: Mapping[tuple[str, ...], Any]) -> dict[tuple[str, ...], str]:
    """Name each axis by the last word of its field, or by more of it where that is not unique."""
    last = {fields: fields[0].rpartition(".")[2] for fields in axes}
    taken = list(last.values())
    more = {fields: re.sub(r"^(objective|constraint|head|posthoc)\.", "", fields[0]) for fields in axes}
    return {fields: name if taken.count(name) == 1 else more[fields] for fields, name in last.items()}


def _set(owner: Any, field: str, value: Any, where: str) -> Any:
    """Return a frozen dataclass with one field, or a field of a field, changed; its own checks apply."""
    if not dataclasses.is_dataclass(owner):
        raise ValueError(f"grid names {where}.{field}, but {where} is {owner!r} here")
    name, _, inner_field = field.partition(".")
    check_name(f"field of {type(owner).__name__} in grid", name, [f.name for f in dataclasses.fields(owner)])
    changed = _set(getattr(owner, name), inner_field, value, name) if inner_field else value
    return dataclasses.replace(owner, **{name: changed})  # type: ignore[type-var]
