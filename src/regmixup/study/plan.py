"""A study file as a value, and the runs it asks for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regmixup import methods, recipes
from regmixup.config import decode
from regmixup.data import FAMILIES, check_dataset
from regmixup.names import unknown

if TYPE_CHECKING:
    from regmixup.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Which datasets a study evaluates on. A family's name (digits-c) stands for all of its sets.

    feature_scores: also predict the train set and score by features (Mahalanobis, kNN, ViM, ...): some seconds, with
    kNN up to a minute or two, per run on CIFAR.
    """

    validation: str
    test: str
    shift: tuple[str, ...] = ()
    ood: tuple[str, ...] = ()
    profile: str = ""
    feature_scores: bool = False

    def __post_init__(self) -> None:
        for name in self.datasets():
            check_dataset(name)
        for what, names in (("shift", self.shift_sets()), ("ood", self.ood)):
            if len(set(names)) != len(names):
                raise ValueError(f"{what} must name each dataset once, got {', '.join(names)}")
        if self.profile and not self.profile.startswith("path:"):
            raise ValueError(f"profile must be a `path:` set such as path:{self.test}, got {self.profile!r}")

    def shift_sets(self) -> list[str]:
        return [name for entry in self.shift for name in (FAMILIES[entry].names if entry in FAMILIES else [entry])]

    def datasets(self) -> list[str]:
        """Every dataset to predict."""
        profile = [self.profile] if self.profile else []
        return [self.validation, self.test, *self.shift_sets(), *self.ood, *profile]


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One line of a study: a method's run, under a recipe, and what tables call it."""

    method: str
    config: TrainConfig
    recipe: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Study:
    """Methods x seeds under one recipe.

    train: changes to the recipe's fields. about: what the study can and cannot show, printed in the report.
    """

    name: str
    title: str
    recipe: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    evaluate: Evaluation
    train: dict[str, Any] = field(default_factory=dict)
    about: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.-]+", self.name):
            raise ValueError(f"name must be letters, digits, '-', '_' and '.': it names a folder, got {self.name!r}")
        recipes.get(self.recipe)
        for name in self.methods:
            methods.get(name)
        for name in ("seed", "objective"):
            if name in self.train:
                raise ValueError(f"{name} cannot stand under [train]: a study names its seeds and methods")
        for what in ("methods", "seeds"):
            values = getattr(self, what)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{what} of study {self.name!r} must be a list without repetition, got {values}")

    def runs(self) -> Iterator[PlannedRun]:
        """Every planned run, seed by seed, so that an interrupted study has whole seeds to compare."""
        from regmixup.training.config import configure

        for seed in self.seeds:
            for method in self.methods:
                changes = {k: tuple(v) if isinstance(v, list) else v for k, v in self.train.items()}
                config = configure(self.recipe, method, seed=seed, **changes)
                yield PlannedRun(method=method, config=config, recipe=self.recipe, label=method)


def studies() -> dict[str, Path]:
    """The studies that come with the package, by name."""
    folder = Path(str(resources.files("regmixup") / "studies"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_study(name_or_file: str) -> Study:
    """A study by name, or from a TOML file, whose path every error names."""
    known = studies()
    path = known.get(name_or_file, Path(name_or_file))
    if not path.is_file():
        if path.suffix == ".toml":
            raise ValueError(f"study file {name_or_file} does not exist")
        raise unknown("study", name_or_file, known)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        return decode(Study, {"name": path.stem, **values}, "study")
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read study {path}: {error}") from error
