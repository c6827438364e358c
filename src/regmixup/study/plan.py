"""Study files: what they may say, and the study that they mean."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from regmixup import methods, recipes
from regmixup.config import decode
from regmixup.data.catalogue import FAMILIES, find
from regmixup.names import check_name, is_hidden, unknown
from regmixup.study.evaluation_sets import Evaluation
from regmixup.study.planned import Part, PlannedRun, Scale, Study

__all__ = ["Evaluation", "Part", "PlannedRun", "Scale", "Study", "StudyFile", "header", "load_study", "studies"]


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """What a study file may say. Sections [train.X] and [evaluate.X] hold for the recipe X, or for all recipes whose
    train set is of the family X; what stands in [train] and [evaluate] themselves holds for all.
    """

    name: str
    title: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    evaluate: dict[str, Any]
    recipe: str = ""
    recipes: tuple[str, ...] = ()
    only: dict[str, Any] = field(default_factory=dict)
    seeds_of: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Any] = field(default_factory=dict)
    select: bool = False
    timing: bool = False
    refresh_batch_norm: bool | tuple[str, ...] = False
    refresh_augmented: bool = False
    about: str = ""

    def study(self, source: str) -> Study:
        """The study, with every section resolved. source: where the file is."""
        names = (self.recipe,) if self.recipe else self.recipes
        if not names or (self.recipe and self.recipes) or len(set(names)) != len(names):
            raise ValueError("study must have recipe (str), or recipes (a list of str without repetition)")
        if not self.methods or len(set(self.methods)) != len(self.methods):
            raise ValueError(
                f"methods of study {self.name!r} must be one or more, without repetition, got {list(self.methods)}"
            )
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
        parts = [self._part(name, families[name]) for name in names]
        own = {f.name for f in fields(Study)} & {f.name for f in fields(self)}
        return Study(**{name: getattr(self, name) for name in own}, parts=tuple(parts), source=source)

    def _part(self, recipe: str, family: str) -> Part:
        own = [method for method in self.methods if recipe in self.only.get(method, [recipe])]
        train = _section(self.train, recipe, family)
        for name in ("seed", "objective"):
            if name in train:
                raise ValueError(f"{name} cannot stand under [train]: a study names its seeds and methods")
        evaluate = decode(Evaluation, _section(self.evaluate, recipe, family), "study.evaluate")
        return Part(recipe=recipe, methods=tuple(own), evaluate=evaluate, train=train)


def _sections(table: Mapping[str, Any]) -> list[str]:
    """The keys of a table that are names of sections rather than of fields."""
    known = {*FAMILIES, *recipes.RECIPES}
    return [key for key, value in table.items() if isinstance(value, dict) and key in known]


def _section(table: Mapping[str, Any], recipe: str, family: str) -> dict[str, Any]:
    """What holds for a recipe: the table's own fields, those of its family, and its own, the later the stronger."""
    shared = {key: value for key, value in table.items() if key not in _sections(table)}
    return shared | table.get(family, {}) | table.get(recipe, {})


def studies() -> dict[str, Path]:
    """The studies that come with the package, by name."""
    folder = Path(str(resources.files("regmixup") / "studies"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def header(path: Path) -> dict[str, str]:
    """What the comment at the top of a study file says: its command, cost, expected result, and place in the paper."""
    lines = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()[1:]
    found: dict[str, str] = {}
    for line in (line.removeprefix("#") for line in lines):
        if line.startswith("   ") and line[3:4].strip():
            name, _, text = line.strip().partition(" ")
            found[name] = text.strip()
        elif found and line.strip():
            found[next(reversed(found))] += f" {line.strip()}"
    return found


def _check_words(values: Any, where: str = "study") -> None:
    """Raise unless every text prints as it reads: titles and labels are shown in terminals, reports and file names."""
    if isinstance(values, str) and any(is_hidden(c) for c in values if c not in "\n\t"):
        raise ValueError(f"{where} must be text without control characters, got {values!a}")
    pairs = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for name, value in pairs:
        _check_words(name, f"a name in {where}")
        _check_words(value, f"{where}.{name}")


def load_study(name_or_file: str, scale: Scale = "full") -> Study:
    """A study by name, or from a TOML file, whose path every error names. scale: "smoke" cuts it down to seconds."""
    known = studies()
    path = known.get(name_or_file, Path(name_or_file))
    if not path.is_file():
        if path.suffix == ".toml":
            raise ValueError(f"study file {name_or_file} does not exist")
        raise unknown("study", name_or_file, known)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        _check_words(values)
        study = decode(StudyFile, {"name": path.stem, **values}, "study").study(
            name_or_file if name_or_file in known else str(path)
        )
        if scale == "full":
            return study
        from regmixup.study.smoke import marked

        return marked(study)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read study {path}: {error}") from error
