"""Planned runs: each is one line of a study's tables, with the datasets that its model is evaluated on."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from regmixup import methods
from regmixup.config import Count, check_fields, encode, fingerprint, introduced, values_of
from regmixup.data.catalogue import find, sets_of
from regmixup.study.grid import Point
from regmixup.types import Precision

if TYPE_CHECKING:
    from regmixup.posthoc import Posthoc
    from regmixup.training.config import TrainConfig
    from regmixup.training.run import BatchNorm

_LONGEST_LABEL = 150
"""Bytes of a label in the name of a file: with what stands around it, a file system's 255 bytes suffice."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The datasets that the models of one recipe are evaluated on.

    validation: where T and sigma_0 are chosen; without it there are no temperature-scaled values.
    test: without it only the validation set is ever predicted, as in a study that selects.
    shift: a family's name (digits-c) means all of its sets, except CIFAR-C's 4 corruptions beyond the benchmark.
    profile: a `path:` set, for the entropy between classes.
    calibration: T and sigma_0 come from a validation set that the model itself was not trained on ("holdout"), or, for
    a model trained on everything, from a companion trained on all but the validation set: one for all seeds
    ("companion"), as in the paper, or one per seed ("companion-per-seed"), so that reports can test what depends on T.
    feature_scores: predict the train set, too, and score by features (Mahalanobis, kNN, ViM, ...); takes seconds, with
    kNN up to a minute or two, per run on CIFAR.
    resamples: bootstrap resamples behind each interval.
    precision: precision of the forward passes; tf32 takes a third of float32's time on CUDA.
    """

    validation: str = ""
    test: str = ""
    shift: tuple[str, ...] = ()
    ood: tuple[str, ...] = ()
    profile: str = ""
    calibration: Literal["holdout", "companion", "companion-per-seed"] = "holdout"
    feature_scores: bool = False
    resamples: Count = 1000
    precision: Precision = introduced("float32")

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.test and (self.shift or self.ood or self.profile or not self.validation):
            raise ValueError("evaluate must name a test set, or a validation set and no other, got no test set")
        if self.calibration != "holdout" and not (self.validation and self.test):
            raise ValueError(f"validation and test must both be named with calibration {self.calibration!r}")
        for role in ("validation", "test", "profile"):
            if name := getattr(self, role):
                find(name, f"dataset of {role}")
        for role, names in {"shift": self.shift_sets(), "ood": self.ood}.items():
            for name in names:
                find(name, f"dataset of {role}")
            if len(set(names)) != len(names):
                raise ValueError(f"{role} must name each dataset once, got {', '.join(names)}")
        if self.profile and not find(self.profile).is_interpolated:
            raise ValueError(f"profile must be a `path:` set such as path:{self.test}, got {self.profile!r}")

    def shift_sets(self) -> list[str]:
        """Return the shifted sets, families replaced by their members."""
        names: list[str] = []
        for entry in self.shift:
            names += [dataset.name for dataset in sets_of(entry)] or [find(entry, "dataset of shift").name]
        return names

    def datasets(self) -> list[str]:
        """Return every dataset to predict."""
        names = [self.validation, self.test, *self.shift_sets(), *self.ood, self.profile]
        return [name for name in names if name]


def usual_posthoc(method: str, recipe: str) -> Posthoc | None:
    """Return a method's own posthoc map, with the values selected for a recipe; None if it has none."""
    from regmixup.posthoc import build

    spec = methods.get(method).at(recipe).posthoc
    return build(spec.name, **spec.fields) if spec is not None else None


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One line of a study: a run, the posthoc map of its predictions, and the datasets it is evaluated on.

    method: its name in METHODS. recipe: the name of the recipe. label: its name in tables, regmixup(alpha=10, eta=1).
    posthoc: applied to predictions before they are scored. companion: a model trained on all but the validation set,
    with the study's first seed or one per seed; T and sigma_0 then come from it. point: the place in the method's
    grid. batch_norm: the statistics that predictions use, see `Run`. keeps_features: features of shifted sets are
    stored, too, as this or another line of the same run needs them.
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
    keeps_features: bool = False

    def __post_init__(self) -> None:
        posthoc, config = self.posthoc, self.config
        if posthoc is None:
            return
        if config.head_name != posthoc.head or config.members > 1:
            raise ValueError(
                f"{self.method} needs one model with the {posthoc.head} head, for {type(posthoc).__name__}, "
                f"got head {config.head_name!r} and members {config.members}"
            )
        if posthoc.needs_validation and not self.evaluate.validation:
            raise ValueError(f"{self.method} needs a validation set to choose what it must fit, got none")

    @property
    def name(self) -> str:
        """Return its label and seed, its name in messages."""
        return f"{self.label} seed {self.config.seed}"

    @property
    def stem(self) -> str:
        """Return the stem of its file names in the run folder.

        The digits identify the evaluation sets, and what its rows depend on that neither these nor the label say: a
        posthoc map that is not the method's own, the seed of a companion that serves all seeds, unless it is 0, and a
        label that is too long for the name of a file.
        """
        label = re.sub(r"[^\w.+=(), -]", "-", self.label)
        digits = fingerprint(self.evaluate)
        if self.posthoc is not None and self.posthoc != usual_posthoc(self.method, self.recipe):
            digits = hashlib.sha256(f"{digits} {fingerprint(self.posthoc)}".encode()).hexdigest()
        if self.companion is not None and self.evaluate.calibration == "companion" and self.companion.seed != 0:
            digits = hashlib.sha256(f"{digits} companion {self.companion.seed}".encode()).hexdigest()
        if len(label.encode()) > _LONGEST_LABEL:
            digits = hashlib.sha256(f"{digits} {label}".encode()).hexdigest()
            label = label.encode()[:_LONGEST_LABEL].decode(errors="ignore")
        return f"{label}-{digits[:8]}"

    @property
    def companion_line(self) -> PlannedRun:
        """Return the line that T and sigma_0 come from: the companion, evaluated on its validation images alone."""
        assert self.companion is not None
        evaluation = Evaluation(
            precision=self.evaluate.precision,
            validation=self.evaluate.validation,
            resamples=self.evaluate.resamples,
        )
        return replace(self, config=self.companion, companion=None, evaluate=evaluation)

    def refreshed(self, batch_norm: BatchNorm = "refreshed") -> PlannedRun:
        """Return the same run with refreshed batch-norm statistics, under a label of its own."""
        label = f"{self.label.removesuffix(')')}, " if self.label.endswith(")") else f"{self.label}("
        return replace(self, label=f"{label}bn={batch_norm})", batch_norm=batch_norm)

    def entry(self, folder: str) -> dict[str, Any]:
        """Return its entry in study.json. folder: the run folder."""
        return {
            "method": self.method,
            "label": self.label,
            "recipe": self.recipe,
            "seed": self.config.seed,
            "train_images": find(self.config.train_set).images,
            "changed": self._changed(),
            "folder": folder,
            "stem": self.stem,
            "calibration": self.evaluate.calibration,
            "posthoc": encode(self.posthoc) if self.posthoc is not None else None,
            "score": methods.get(self.method).score,
        }

    def _changed(self) -> list[str]:
        """Return what it has instead of its recipe's values and its method's own parts, in words.

        Of parts nothing is said where the label names values; of the precision never, as it follows the device.
        """
        from regmixup.training.config import configure

        parts = ("objective", "constraint", "head", "posthoc")
        silent = {"precision", *parts} if self.point.varied else {"precision"}
        usual = values_of(configure(self.recipe, self.method, seed=self.config.seed))
        usual["posthoc"] = usual_posthoc(self.method, self.recipe)
        planned = {**values_of(self.config), "posthoc": self.posthoc}
        return [
            f"{name} {_worded(value)} instead of {_worded(usual[name])}"
            for name, value in planned.items()
            if name not in silent and value != usual[name]
        ]


def _worded(value: object) -> str:
    """Return a value in words, a tuple as a list."""
    return (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)
