"""Studies: read a TOML file, check it, and list the runs that it asks for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regmixup import methods, recipes
from regmixup.config import check_choices, decode, encode, fingerprint, introduced, values_of
from regmixup.data.catalogue import FAMILIES, find
from regmixup.names import check_name, unknown
from regmixup.study.grid import Point, ValueGrid, adjust, as_tuple, check_distinct
from regmixup.study.planned_run import Evaluation, PlannedRun, usual_posthoc
from regmixup.study.smoke import SEEDS, shrink

if TYPE_CHECKING:
    from regmixup.training.config import TrainConfig
    from regmixup.training.run import BatchNorm

Scale = Literal["full", "smoke"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One recipe of a study: its methods, the changes to its training, and the datasets its models are evaluated on.

    values: for a method, the fields that another study selected, named as in a grid; see `take_selected`.
    """

    recipe: str
    methods: tuple[str, ...]
    evaluate: Evaluation
    train: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict, metadata={"introduced": {}})


@dataclass(frozen=True, kw_only=True)
class StudyKeys:
    """The keys of a study file that `Study` takes over unchanged.

    seeds_of: the seeds of a method, where they differ from `seeds`. grid: the values of a method, see `grid.py`.
    reuses: other studies, whose archived runs count as done here; their archives lie in folders beside this study's.
    confirms: the study that selects what this one measures; this one then only runs with these choices.
    select: choose the best point of each grid on the validation set; no other dataset may then be evaluated.
    timing: report the time of an epoch of each method, too.
    refresh_batch_norm: the methods (true for all) that are also evaluated with batch-norm statistics estimated again
    from their train images. These are further lines of the same runs, such as regmixup(bn=refreshed).
    refresh_augmented, refresh_mixed: evaluate them with statistics of augmented images, and of mixed ones, too.
    about: what the study can and cannot show, printed in the report.
    """

    name: str
    title: str
    seeds: tuple[int, ...]
    seeds_of: dict[str, Any] = field(default_factory=dict, metadata={"introduced": {}})
    grid: dict[str, Any] = field(default_factory=dict)
    select: bool = False
    timing: bool = False
    refresh_batch_norm: bool | tuple[str, ...] = introduced(False)
    refresh_augmented: bool = introduced(False)
    refresh_mixed: bool = introduced(False)
    reuses: tuple[str, ...] = introduced(())
    confirms: str = introduced("")
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Study(StudyKeys):
    """Methods x recipes x seeds x grids. scale: "smoke" runs in seconds, see `smoke.py`. source: the study file."""

    parts: tuple[Part, ...]
    scale: Scale = "full"
    source: str = ""

    def __post_init__(self) -> None:
        check_choices(self)
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise ValueError(f"name must be letters, digits, '-', '_' and '.': it names a folder, got {self.name!r}")
        check_distinct("seeds", self.seeds)
        for method, seeds in self.seeds_of.items():
            check_name("method under [seeds_of]", method, self.methods)
            if not isinstance(seeds, list) or not all(type(seed) is int for seed in seeds):
                raise ValueError(f"seeds_of.{method} must be a list of int, got {seeds!r}")
            check_distinct(f"seeds_of.{method}", seeds)
        for method in self.refreshed:
            check_name("method of refresh_batch_norm", method, self.methods)
        if (self.refresh_augmented or self.refresh_mixed) and not self.refreshed:
            raise ValueError("refresh_augmented and refresh_mixed must be false where refresh_batch_norm is")
        if self.select:
            self._check_selection()
        for method in self.grid:
            check_name("method with a grid", method, self.methods)
            self._check_grids(method, self.grids_of(method))

    def _check_selection(self) -> None:
        """Raise if a study that selects could see anything but validation images."""
        if self.refresh_batch_norm:
            raise ValueError("refresh_batch_norm must be false in a study that selects, whose lines are candidates")
        for part in self.parts:
            if part.evaluate.test:
                raise ValueError(
                    "a study that selects must evaluate on a validation set and on nothing else, so that no test, "
                    f"shifted or OOD set can reach the choice; {part.recipe} names {part.evaluate.test}"
                )

    def _check_grids(self, method: str, grids: list[ValueGrid]) -> None:
        for grid in grids:
            _check_fields(grid.fields, f"grid.{method}")
        labels = [f"{method}{point}" for grid in grids for point in grid.points()]
        if repeated := [label for label in labels if labels.count(label) > 1]:
            raise ValueError(
                f"grid.{method} must give each point a label of its own, got {repeated[0]} twice: a value appears in "
                "it if it stands in a list"
            )
        if self.select and len({axis.of_posthoc for grid in grids for axis in grid.axes}) > 1:
            raise ValueError(
                f"the grid of {method} must be over training or over posthoc fields where a study selects: the "
                "former are chosen by accuracy, the latter by ECE"
            )
        if self.select and any(sorted(grid.fixed) != sorted(grids[0].fixed) for grid in grids):
            raise ValueError(
                f"the tables of grid.{method} must differ in lists alone where a study selects, got "
                f"{' and '.join(str(dict(grid.fixed)) for grid in grids)}: what stands in no list is not passed on"
            )

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the methods of all recipes, in order of appearance."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.methods))

    @property
    def refreshed(self) -> tuple[str, ...]:
        """Return the methods that are also evaluated with refreshed batch-norm statistics."""
        if isinstance(self.refresh_batch_norm, tuple):
            return self.refresh_batch_norm
        return self.methods if self.refresh_batch_norm else ()

    def grids_of(self, method: str) -> list[ValueGrid]:
        """Return a method's grids, one for each of its tables; without any, the single point that changes nothing."""
        tables = self.grid.get(method, {})
        tables = [tables] if isinstance(tables, Mapping) else tables
        if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
            raise ValueError(f"grid.{method} must be a table, or several ([[grid.{method}]]), got {tables!r}")
        return [ValueGrid.of(table) for table in tables]

    def runs(self) -> Iterator[PlannedRun]:
        """Plan every run, seed by seed, so that an interrupted study has whole seeds to compare."""
        plan = list(self._runs() if self.scale == "full" else shrink(self._runs()))
        # Lines of one run share its predictions, which are made again where features are needed and not stored.
        keys = [(planned.config, planned.batch_norm, planned.evaluate) for planned in plan]
        with_features = {
            key for key, planned in zip(keys, plan, strict=True) if planned.posthoc and planned.posthoc.needs_features
        }
        return (replace(planned, keeps_features=key in with_features) for key, planned in zip(keys, plan, strict=True))

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

    def _runs(self) -> Iterator[PlannedRun]:
        all_seeds = [*self.seeds, *(seed for seeds in self.seeds_of.values() for seed in seeds)]
        for seed in dict.fromkeys(all_seeds):
            for part in self.parts:
                for method in part.methods:
                    if seed in self.seeds_of.get(method, self.seeds):
                        yield from self._lines(part, method, seed)

    def _lines(self, part: Part, method: str, seed: int) -> Iterator[PlannedRun]:
        """Plan the points of a method's grid, each with the lines of its refreshed batch-norm statistics."""
        refreshed: list[BatchNorm] = []
        if method in self.refreshed:
            refreshed.append("refreshed")
            refreshed += ["refreshed-augmented"] if self.refresh_augmented else []
            refreshed += ["refreshed-mixed"] if self.refresh_mixed else []
        for grid in self.grids_of(method):
            for point in grid.points():
                try:
                    planned = self._plan(part, method, seed, point, grid.changes(point))
                except ValueError as error:
                    where = f"{method}{point}, {part.recipe}, of study {self.source or self.name}"
                    raise ValueError(f"cannot plan {where}: {error}") from error
                yield planned
                yield from (planned.refreshed(statistics) for statistics in refreshed)

    def _plan(self, part: Part, method: str, seed: int, point: Point, changes: dict[str, Any]) -> PlannedRun:
        from regmixup.training.config import configure

        changes = part.values.get(method, {}) | changes
        plain = {name: as_tuple(value) for name, value in (part.train | changes).items() if "." not in name}
        dotted = {name: value for name, value in changes.items() if "." in name}
        config = configure(part.recipe, method, seed=seed, **plain)
        config, posthoc = adjust(config, usual_posthoc(method, part.recipe), dotted)
        return PlannedRun(
            method=method,
            config=config,
            recipe=part.recipe,
            label=f"{method}{point}",
            evaluate=part.evaluate,
            posthoc=posthoc,
            companion=self._companion(config, part.evaluate),
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

    @property
    def content(self) -> str:
        """Return a fingerprint of what the study asks for, wherever its file lies, and of the plugins it trains by."""
        from regmixup.training.config import plugins_of

        plugins = {origin for planned in self.runs() for origin in plugins_of(planned.config, planned.method)}
        return fingerprint(replace(self, source=" ".join(sorted(origin.sha256 for origin in plugins))))

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """Return the study as JSON values, with what its runs really use; at smoke scale its file says otherwise.

        recipes: network, train set and evaluation sets of every recipe. recipe, evaluate: those of the first.
        """
        by_recipe: dict[str, Any] = {}
        for planned in self.runs():
            train_set = planned.config.train_set
            trained = {"network": planned.config.network, "train_set": train_set, "images": find(train_set).images}
            by_recipe.setdefault(planned.recipe, {**trained, "evaluate": encode(planned.evaluate)})
        first = next(iter(by_recipe))
        return {
            **encode(self),
            "content": self.content,
            "methods": list(self.methods),
            "recipes": by_recipe,
            "recipe": first,
            "evaluate": by_recipe[first]["evaluate"],
        }


@dataclass(frozen=True, kw_only=True)
class StudyHeader:
    """The keys of a study file that are for its readers. Only the title is required.

    description: what the study is about, in a sentence. cost: what it costs, as `docs/make_pages.py` writes it.
    expected: the result to expect. paper: the tables and figures of the paper that it remakes.
    """

    title: str
    description: str = ""
    cost: str = ""
    expected: str = ""
    paper: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StudyFile(StudyKeys, StudyHeader):
    """The keys of a study file.

    Sections [train.X] and [evaluate.X] apply to the recipe X, or to all recipes whose train set is of the family X;
    keys of [train] and [evaluate] themselves apply to all.
    """

    methods: tuple[str, ...]
    evaluate: dict[str, Any]
    recipe: str = ""
    recipes: tuple[str, ...] = ()
    only: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)

    def study(self, source: str) -> Study:
        """Return the study, with every section resolved. source: the path of the file."""
        if bool(self.recipe) == bool(self.recipes):
            raise ValueError("study must have recipe (str), or recipes (a list of str)")
        names = (self.recipe,) if self.recipe else self.recipes
        check_distinct("recipes", names)
        check_distinct("methods", self.methods)
        for method in self.methods:
            methods.get(method)
        for method, chosen in self.only.items():
            check_name("method under [only]", method, self.methods)
            if not isinstance(chosen, list) or not chosen:
                raise ValueError(f"only.{method} must be a list of recipes, got {chosen!r}")
            for recipe in chosen:
                check_name(f"recipe of only.{method}", recipe, names)
        families = {name: find(recipes.get(name).train_set).family for name in names}
        for table in (self.train, self.evaluate):
            for section in _sections(table):
                check_name("recipe or family of a section", section, {*families, *families.values()})
        parts = tuple(self._part(name, families[name]) for name in names)
        return Study(**values_of(self, StudyKeys), parts=parts, source=source)

    def _part(self, recipe: str, family: str) -> Part:
        train = _section(self.train, recipe, family)
        _check_fields(train, "train")
        return Part(
            recipe=recipe,
            methods=tuple(method for method in self.methods if recipe in self.only.get(method, [recipe])),
            evaluate=decode(Evaluation, _section(self.evaluate, recipe, family), "study.evaluate"),
            train=train,
        )


def _check_fields(names: Collection[str], section: str) -> None:
    for name in ("seed", "objective"):
        if name in names:
            raise ValueError(f"{name} cannot stand under [{section}]: a study names its seeds and methods")


def _sections(table: Mapping[str, Any]) -> list[str]:
    """Return the keys of a table that name sections, not fields."""
    known = {*FAMILIES, *recipes.RECIPES}
    return [key for key, value in table.items() if isinstance(value, dict) and key in known]


def _section(table: Mapping[str, Any], recipe: str, family: str) -> dict[str, Any]:
    """Return the fields for a recipe: shared ones, overridden by its family's, overridden by its own."""
    shared = {key: value for key, value in table.items() if key not in _sections(table)}
    return shared | table.get(family, {}) | table.get(recipe, {})


def studies() -> dict[str, Path]:
    """Return the files of the studies that come with the package, by name."""
    folder = Path(str(resources.files("regmixup") / "studies"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_header(path: Path) -> StudyHeader:
    """Read the keys of a study file that are for its readers, without planning its runs (and without torch)."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    keys = {f.name: values[f.name] for f in fields(StudyHeader) if f.name in values}
    header = decode(StudyHeader, keys, f"study {path}")
    description, expected = (" ".join(text.split()) for text in (header.description, header.expected))
    return replace(header, description=description, expected=expected)


def load_study(name_or_file: str, scale: Scale = "full") -> Study:
    """Load a study by its name or from a TOML file; errors name the file. scale: "smoke" cuts it down to seconds."""
    known = studies()
    path = known.get(name_or_file, Path(name_or_file))
    if not path.is_file():
        if path.suffix == ".toml":
            raise ValueError(f"study file {name_or_file} does not exist")
        raise unknown("study", name_or_file, known)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        file = decode(StudyFile, {"name": path.stem, **values}, "study")
        study = file.study(name_or_file if name_or_file in known else str(path))
        return study if scale == "full" else study.at_smoke_scale()
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read study {path}: {error}") from error
