"""Studies: read a TOML file, check it, and list the runs that it asks for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regmixup import methods, recipes
from regmixup.config import check_fields, decode
from regmixup.data.catalogue import find
from regmixup.names import check_name, unknown
from regmixup.study.grid import Point, adjust, as_tuple, check_distinct, grid_points
from regmixup.study.planned_run import Evaluation, PlannedRun, usual_posthoc
from regmixup.study.smoke import SEEDS, shrink

if TYPE_CHECKING:
    from regmixup.training.config import TrainConfig
    from regmixup.training.run import BatchNorm

Scale = Literal["full", "smoke"]


@dataclass(frozen=True, kw_only=True)
class Study:
    """Methods x recipes x seeds x grids: the keys of a study file.

    description: what the study is about, in a sentence. cost: what it costs, as `docs/make_pages.py` writes it.
    expected: the result to expect. about: what the study can and cannot show, printed in the report. paper: the tables
    and figures of the paper that it remakes.
    recipes: a file may have one `recipe` instead. only: for a method, the recipes that it runs with. seeds_of: for a
    method, its seeds where they differ from `seeds`. grid: the values of a method, see `grid.py`.
    train: changes to the recipes. evaluate: the fields of `Evaluation`. Sections [train.X] and [evaluate.X] apply to
    the recipe X, or to all recipes whose train set is of the family X.
    select: choose the best point of each grid on the validation set; no other dataset may then be evaluated.
    rank: compare all candidates by their mean rank, see `report.leaderboard.mean_ranks`; for sets made for validation.
    confirms: the study that selects what this one measures; this one then only runs with these choices.
    reuses: other studies, whose archived runs count as done here; their archives lie in folders beside this study's.
    refresh_batch_norm: evaluate every run also with batch-norm statistics estimated again from its train images. These
    are further lines of the same runs, such as regmixup(bn=refreshed).
    refresh_augmented, refresh_mixed: then evaluate them with statistics of augmented images, and of mixed ones, too.

    The last three are not for files. scale: "smoke" runs in seconds, see `smoke.py`. source: the study file.
    selected: for a recipe and a method, the fields that another study chose; see `take_selected`.
    """

    name: str
    title: str
    methods: tuple[str, ...]
    recipes: tuple[str, ...]
    seeds: tuple[int, ...]
    evaluate: dict[str, Any]
    only: dict[str, Any] = field(default_factory=dict)
    seeds_of: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    select: bool = False
    rank: bool = False
    confirms: str = ""
    reuses: tuple[str, ...] = ()
    refresh_batch_norm: bool = False
    refresh_augmented: bool = False
    refresh_mixed: bool = False
    description: str = ""
    cost: str = ""
    expected: str = ""
    about: str = ""
    paper: tuple[str, ...] = ()
    scale: Scale = "full"
    source: str = ""
    selected: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise ValueError(f"name must be letters, digits, '-', '_' and '.': it names a folder, got {self.name!r}")
        self._check_names()
        for method in self.grid:
            check_distinct(f"labels of grid.{method}", [f"{method}{point}" for point in self.points_of(method)])
        if self.select and self.refresh_batch_norm:
            raise ValueError("refresh_batch_norm must be false in a study that selects, whose lines are candidates")
        if (self.refresh_augmented or self.refresh_mixed) and not self.refresh_batch_norm:
            raise ValueError("refresh_batch_norm must be true with refresh_augmented or refresh_mixed, got false")
        for recipe, evaluation in self.evaluations.items():
            if self.select and evaluation.test:
                raise ValueError(
                    "a study that selects must evaluate on a validation set and on nothing else, so that no test, "
                    f"shifted or OOD set can reach the choice; {recipe} names {evaluation.test}"
                )

    def _check_names(self) -> None:
        """Raise for names that are not known, or not of this study."""
        for name in ("seeds", "methods", "recipes"):
            check_distinct(name, getattr(self, name))
        for method in self.methods:
            methods.get(method)
        for section in ("only", "seeds_of", "grid"):
            for method in getattr(self, section):
                check_name(f"method of {section}", method, self.methods)
        for section, kind in (("only", str), ("seeds_of", int)):
            for method, entries in getattr(self, section).items():
                if not isinstance(entries, list) or any(type(entry) is not kind for entry in entries):
                    raise ValueError(f"{section}.{method} must be a list of {kind.__name__}, got {entries!r}")
                check_distinct(f"{section}.{method}", entries)
        for chosen in self.only.values():
            for recipe in chosen:
                check_name("recipe of only", recipe, self.recipes)
        sections = {*self.recipes, *map(_family, self.recipes)}
        for key, value in (*self.train.items(), *self.evaluate.items()):
            if isinstance(value, dict):
                check_name("recipe or family of a section", key, sections)

    @cached_property
    def evaluations(self) -> dict[str, Evaluation]:
        """Return the datasets that the models of each recipe are evaluated on."""
        return {name: decode(Evaluation, _section(self.evaluate, name), "study.evaluate") for name in self.recipes}

    def methods_of(self, recipe: str) -> list[str]:
        return [method for method in self.methods if recipe in self.only.get(method, [recipe])]

    def points_of(self, method: str) -> list[Point]:
        """Return the points of a method's grids, one after the other; without any, one that changes nothing."""
        tables = self.grid.get(method, {})
        tables = [tables] if isinstance(tables, Mapping) else tables
        if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
            raise ValueError(f"grid.{method} must be a table, or several ([[grid.{method}]]), got {tables!r}")
        return [point for table in tables for point in grid_points(table)]

    def at_smoke_scale(self) -> Study:
        """Return the study at smoke scale, under a name and a title that say so."""
        return replace(
            self,
            name=f"{self.name}-smoke",
            title=f"{self.title} (smoke scale)",
            seeds=self.seeds[:SEEDS],
            seeds_of={method: seeds[:SEEDS] for method, seeds in self.seeds_of.items()},
            scale="smoke",
        )

    def runs(self) -> Iterator[PlannedRun]:
        """Plan every run, seed by seed, so that an interrupted study has whole seeds to compare."""
        plan = list(self._runs() if self.scale == "full" else shrink(self._runs()))
        # Lines of one run share its predictions, which are made again where features are needed and not stored.
        with_features = {_shared(planned) for planned in plan if planned.posthoc and planned.posthoc.needs_features}
        return (replace(planned, keeps_features=_shared(planned) in with_features) for planned in plan)

    def _runs(self) -> Iterator[PlannedRun]:
        all_seeds = [*self.seeds, *(seed for seeds in self.seeds_of.values() for seed in seeds)]
        for seed in dict.fromkeys(all_seeds):
            for recipe in self.recipes:
                for method in self.methods_of(recipe):
                    if seed in self.seeds_of.get(method, self.seeds):
                        yield from self._lines(recipe, method, seed)

    def _lines(self, recipe: str, method: str, seed: int) -> Iterator[PlannedRun]:
        """Plan the points of a method's grid, each with the lines of its refreshed batch-norm statistics."""
        refreshed: list[BatchNorm] = ["refreshed"] if self.refresh_batch_norm else []
        refreshed += ["refreshed-augmented"] if self.refresh_augmented else []
        refreshed += ["refreshed-mixed"] if self.refresh_mixed else []
        for point in self.points_of(method):
            try:
                planned = self._plan(recipe, method, seed, point)
            except ValueError as error:
                where = f"{method}{point}, {recipe}, of study {self.source or self.name}"
                raise ValueError(f"cannot plan {where}: {error}") from error
            yield planned
            yield from (planned.refreshed(statistics) for statistics in refreshed)

    def _plan(self, recipe: str, method: str, seed: int, point: Point) -> PlannedRun:
        from regmixup.training.config import configure

        selected = self.selected.get(recipe, {}).get(method, {})
        changes = _section(self.train, recipe) | selected | dict(point.fields)
        plain = {name: as_tuple(value) for name, value in changes.items() if "." not in name}
        dotted = {name: value for name, value in changes.items() if "." in name}
        for name, value in changes.items():  # study.json records them, once everything is trained
            if name in ("seed", "objective"):
                raise ValueError(f"{name} cannot stand under [train] or [grid]: a study names its seeds and methods")
            if not isinstance(value, str | int | float | list | tuple | None):
                raise ValueError(f"{name} must be a number, text or list, as a study file holds it, got {value!r}")
        config = configure(recipe, method, seed=seed, **plain)
        config, posthoc = adjust(config, usual_posthoc(method, recipe), dotted)
        evaluation = self.evaluations[recipe]
        companion = self._companion(config, evaluation)
        check_new_images(evaluation, config.train_set)
        return PlannedRun(
            method=method,
            config=config,
            recipe=recipe,
            label=f"{method}{point}",
            evaluate=evaluation,
            posthoc=posthoc,
            companion=companion,
            point=point,
        )

    def _companion(self, config: TrainConfig, evaluate: Evaluation) -> TrainConfig | None:
        """Return the companion of a run, after checking that the validation set may choose anything."""
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


@cache
def check_new_images(evaluation: Evaluation, train_set: str) -> None:
    """Raise if a model would be measured on images that it was trained on, or that T or OOD are taken from."""
    from regmixup.data.roles import overlap, role_of

    for role, names in {"test": [evaluation.test], "shift": evaluation.shift_sets(), "ood": evaluation.ood}.items():
        if trained_on := [name for name in names if name and role_of(name, train_set) == "train"]:
            contract = f"{role} must be images that were not trained on"
            raise ValueError(f"{contract}, got {trained_on[0]!r} for a model of {train_set}")
    apart = {"validation": [evaluation.validation], "ood": evaluation.ood} if evaluation.test else {}
    for role, names in apart.items():
        for name in names:
            if name and not find(name).is_interpolated and overlap(find(name), find(evaluation.test)):
                raise ValueError(f"{role} must hold other images than the test set {evaluation.test}, got {name!r}")


def _shared(planned: PlannedRun) -> object:
    """Return what the lines that share predictions have in common."""
    return planned.config, planned.batch_norm, planned.evaluate


def _family(recipe: str) -> str:
    return find(recipes.get(recipe).train_set).family


def _section(table: Mapping[str, Any], recipe: str) -> dict[str, Any]:
    """Return the fields for a recipe: shared ones, overridden by its family's, overridden by its own."""
    shared = {key: value for key, value in table.items() if not isinstance(value, dict)}
    return shared | table.get(_family(recipe), {}) | table.get(recipe, {})


def studies() -> dict[str, Path]:
    """Return the files of the studies that come with the package, by name."""
    folder = Path(str(resources.files("regmixup") / "studies"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_study(name_or_file: str, scale: Scale = "full") -> Study:
    """Load a study by its name or from a TOML file; errors name the file. scale: "smoke" cuts it down to seconds."""
    known = studies()
    path = known.get(name_or_file, Path(name_or_file))
    if not path.is_file():
        if path.suffix == ".toml":
            raise ValueError(f"study file {name_or_file} does not exist")
        own = f"or a file of your own, such as {name_or_file}.toml; report also takes a study's folder of results"
        raise unknown("study", name_or_file, known, summary=f"{', '.join(sorted(known))}, {own}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        if "recipe" in values:
            values["recipes"] = [values.pop("recipe"), *values.get("recipes", [])]
        if keys := [key for key in ("scale", "source", "selected") if key in values]:
            raise ValueError(f"a study file must leave out what `load_study` sets, got {', '.join(keys)}")
        study = decode(Study, {"name": path.stem, **values, "source": str(name_or_file)}, "study")
        return study if scale == "full" else study.at_smoke_scale()
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read study {path}: {error}") from error
