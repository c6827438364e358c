"""A study as a value: its recipes, methods, seeds and grids, and the runs that they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from regmixup import methods
from regmixup.config import check_choices, encode, fingerprint, introduced
from regmixup.names import check_name
from regmixup.study.evaluation_sets import Evaluation
from regmixup.study.grid import Grid, Point, adjust

if TYPE_CHECKING:
    from regmixup.posthoc import Posthoc
    from regmixup.training.config import TrainConfig
    from regmixup.training.run import BatchNorm

Scale = Literal["full", "smoke"]


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One line of a study: a run, what is done to its predictions, and what they are evaluated on.

    method: its name in METHODS. recipe: the recipe's name. label: what tables call it, regmixup(alpha=10, eta=1).
    posthoc: applied to predictions before they are scored. companion: trained on all but the validation set, with the
    study's first seed or, where there is one per seed, its own; T and sigma_0 then come from it. point: its place in
    the method's grid. batch_norm: the statistics that predictions use, see `Run`.
    """

    method: str
    config: TrainConfig
    recipe: str
    label: str
    evaluate: Evaluation
    posthoc: Posthoc | None = None
    companion: TrainConfig | None = None
    point: Point = field(default_factory=Point)
    batch_norm: BatchNorm = "trained"

    def __post_init__(self) -> None:
        chosen, config = self.posthoc, self.config
        if chosen is None:
            return
        if config.head_name != chosen.head or config.members > 1:
            raise ValueError(
                f"{self.method} needs one model with the {chosen.head} head, for {type(chosen).__name__}, "
                f"got head {config.head_name!r} and members {config.members}"
            )
        if chosen.needs_validation and not self.evaluate.validation:
            raise ValueError(f"{self.method} needs a validation set to choose what it must fit, got none")

    @property
    def name(self) -> str:
        """What a line about this run calls it."""
        return f"{self.label} seed {self.config.seed}"

    @property
    def stem(self) -> str:
        """What its files in the run folder are called; the digits tell apart what different studies evaluate on."""
        label = re.sub(r"[^\w.+=(), -]", "-", self.label)
        return f"{label}-{fingerprint(self.evaluate)[:8]}"

    def refreshed(self, batch_norm: BatchNorm = "refreshed") -> PlannedRun:
        """Return the same run with refreshed batch-norm statistics, under a label of its own."""
        label = f"{self.label.removesuffix(')')}, " if self.label.endswith(")") else f"{self.label}("
        return replace(self, label=f"{label}bn={batch_norm})", batch_norm=batch_norm)

    def entry(self, folder: str) -> dict[str, Any]:
        """Its line in study.json. folder: of the run."""
        own = {"method": self.method, "label": self.label, "recipe": self.recipe, "seed": self.config.seed}
        posthoc = encode(self.posthoc) if self.posthoc is not None else None
        return {**own, "folder": folder, "stem": self.stem, "posthoc": posthoc}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One recipe of a study: which methods it is run with, what changes in it, and what its models are evaluated on.

    values: for a method, fields as in a grid with what another study selected, see `take_selected`.
    """

    recipe: str
    methods: tuple[str, ...]
    evaluate: Evaluation
    train: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict, metadata={"introduced": {}})


@dataclass(frozen=True, kw_only=True)
class Study:
    """Methods x recipes x seeds x grids.

    seeds_of: for a method, its seeds, where they are not `seeds`. grid: for a method, its values; see `grid.py`.
    select: choose each grid's best point by the validation set, which is then all that may be evaluated.
    timing: also report what an epoch of each method costs.
    refresh_batch_norm: the methods, or true for all, whose models are also measured with batch-norm statistics
    estimated again from their train images: further lines, such as regmixup(bn=refreshed), of the same runs.
    refresh_augmented: these also with statistics of augmented images.
    about: what the study can and cannot show, printed in the report. scale: "smoke" cuts it down to seconds.
    source: the file it was read from.
    """

    name: str
    title: str
    parts: tuple[Part, ...]
    seeds: tuple[int, ...]
    seeds_of: dict[str, Any] = field(default_factory=dict, metadata={"introduced": {}})
    grid: dict[str, Any] = field(default_factory=dict)
    select: bool = False
    timing: bool = False
    refresh_batch_norm: bool | tuple[str, ...] = introduced(False)
    refresh_augmented: bool = introduced(False)
    about: str = ""
    scale: Scale = "full"
    source: str = ""

    def __post_init__(self) -> None:
        check_choices(self)
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise ValueError(f"name must be letters, digits, '-', '_' and '.': it names a folder, got {self.name!r}")
        for name, seeds in self.seeds_of.items():
            check_name("method under [seeds_of]", name, self.methods)
            if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
                raise ValueError(f"seeds_of.{name} must be a list of int, got {seeds!r}")
        own = {f"seeds_of.{name}": seeds for name, seeds in self.seeds_of.items()}
        for what, values in {"methods": self.methods, "seeds": self.seeds, **own}.items():
            if not values or len(set(values)) != len(values):
                raise ValueError(
                    f"{what} of study {self.name!r} must be one or more, without repetition, got {list(values)}"
                )
        if self.select and self.refresh_batch_norm:
            raise ValueError("refresh_batch_norm must be false in a study that selects, whose lines are candidates")
        for name in self.refreshed:
            check_name("method of refresh_batch_norm", name, self.methods)
        for part in self.parts:
            if self.select and (part.evaluate.test or not part.evaluate.validation):
                raise ValueError(
                    "a study that selects must evaluate on a validation set and on nothing else, so that no test, "
                    f"shifted or OOD set can reach the choice; {part.recipe} is evaluated on "
                    f"{', '.join(part.evaluate.reported())}"
                )
        for name in self.grid:
            check_name("method with a grid", name, self.methods)
            if not isinstance(self.grid[name], Mapping):
                raise ValueError(f"grid.{name} must be a table, got {self.grid[name]!r}")
            grid = self.grid_of(name)
            for of_study in ("seed", "objective"):
                if of_study in grid.fields:
                    raise ValueError(
                        f"{of_study} cannot stand under [grid.{name}]: a study names its seeds and methods"
                    )
            kinds = {axis.of_posthoc for axis in grid.axes}
            if self.select and len(kinds) > 1:
                raise ValueError(
                    f"the grid of {name} must be over training or over posthoc fields where a study selects: the "
                    "former are chosen by accuracy, the latter by ECE"
                )

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of all recipes, in order of appearance."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.methods))

    @property
    def refreshed(self) -> tuple[str, ...]:
        """The methods that are also measured with refreshed batch-norm statistics."""
        asked = self.refresh_batch_norm
        return asked if isinstance(asked, tuple) else self.methods if asked else ()

    def grid_of(self, method: str) -> Grid:
        """A method's grid; without one, the single point that changes nothing."""
        grid = Grid.of(self.grid.get(method, {}))
        return grid.corners() if self.scale == "smoke" else grid

    def runs(self) -> Iterator[PlannedRun]:
        """Every run, seed by seed, so that an interrupted study has whole seeds to compare."""
        if self.scale == "full":
            yield from self._runs()
            return
        from regmixup.study.smoke import shrink

        seen = []
        for planned in map(shrink, self._runs()):
            own = (planned.label, planned.config, planned.evaluate)  # recipes may shrink to the same one
            if own not in seen:
                seen.append(own)
                yield planned

    def _runs(self) -> Iterator[PlannedRun]:
        for seed in dict.fromkeys([*self.seeds, *(seed for own in self.seeds_of.values() for seed in own)]):
            for part in self.parts:
                for method in (name for name in part.methods if seed in self.seeds_of.get(name, self.seeds)):
                    for point in self.grid_of(method).points():
                        try:
                            planned = self._plan(part, method, seed, point)
                        except ValueError as error:
                            where = f"{method}{point}, {part.recipe}, of study {self.source or self.name}"
                            raise ValueError(f"cannot plan {where}: {error}") from error
                        yield planned
                        if method in self.refreshed:
                            yield planned.refreshed()
                            if self.refresh_augmented:
                                yield planned.refreshed("refreshed-augmented")

    def _plan(self, part: Part, method: str, seed: int, point: Point) -> PlannedRun:
        from regmixup import posthoc
        from regmixup.training.config import configure

        changes = part.values.get(method, {}) | self.grid_of(method).changes(point)
        plain = {name: value for name, value in (part.train | changes).items() if "." not in name}
        config = configure(part.recipe, method, seed=seed, **{name: _value(value) for name, value in plain.items()})
        spec = methods.get(method).at(part.recipe).posthoc
        chosen = posthoc.build(spec.name, **spec.fields) if spec is not None else None
        config, chosen = adjust(config, chosen, {name: value for name, value in changes.items() if "." in name})
        return PlannedRun(
            method=method,
            config=config,
            recipe=part.recipe,
            label=f"{method}{point}",
            evaluate=part.evaluate,
            posthoc=chosen,
            companion=self._companion(config, part.evaluate),
            point=point,
        )

    def _companion(self, config: TrainConfig, evaluate: Evaluation) -> TrainConfig | None:
        """The companion of a run, after making sure that its validation set may choose anything."""
        from regmixup.data.roles import check_validation, rest_of

        validation = evaluate.validation
        if not validation:
            return None
        if evaluate.calibration == "holdout":
            check_validation(validation, config.train_set)
            return None
        check_validation(validation, config.train_set, seen=False)
        seed = self.seeds[0] if evaluate.calibration == "companion" else config.seed
        return replace(config, train_set=rest_of(validation), seed=seed)

    @property
    def content(self) -> str:
        """Names what the study asks for, wherever its file lies."""
        return fingerprint(replace(self, source=""))

    def record(self) -> dict[str, Any]:
        """The study as plain JSON values, with what its runs really use: at smoke scale that is not what its file says.

        recipes: the network, train set and evaluation sets of every recipe. recipe, evaluate: those of the first.
        """
        return dict(self._record)

    @cached_property
    def _record(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for planned in self.runs():
            trained = {"network": planned.config.network, "train_set": planned.config.train_set}
            found.setdefault(planned.recipe, {**trained, "evaluate": encode(planned.evaluate)})
        first = next(iter(found))
        own = {"content": self.content, "methods": list(self.methods), "recipes": found}
        return {**encode(self), **own, "recipe": first, "evaluate": found[first]["evaluate"]}


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
