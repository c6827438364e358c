"""Which datasets the models of a study are evaluated on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regmixup.config import check_choices, check_count, introduced
from regmixup.data.catalogue import FAMILIES, find, sets_of
from regmixup.precision import Precision


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Which datasets the models of one recipe are evaluated on.

    validation: where T and sigma_0 are chosen; without it there are no temperature-scaled values.
    test: without it nothing but the validation set is ever predicted, as in a study that selects.
    shift: a family's name (digits-c) stands for all of its sets, but for CIFAR-C's 4 corruptions beyond the benchmark.
    profile: a `path:` set, for the entropy between classes.
    calibration: T and sigma_0 come from a validation set that the model itself was not trained on ("holdout"), or, for
    a model trained on everything, from a companion that was trained on all but the validation set: one for all seeds
    ("companion"), as in the paper, or one for each ("companion-per-seed"), so that reports can test what depends on T.
    feature_scores: also predict the train set and score by features (Mahalanobis, kNN, ViM, ...): some seconds, with
    kNN up to a minute or two, per run on CIFAR.
    resamples: of the bootstrap that finds each value's interval.
    precision: of the forward passes that predict; tf32 takes a third of float32's time on CUDA.
    """

    validation: str = ""
    test: str = ""
    shift: tuple[str, ...] = ()
    ood: tuple[str, ...] = ()
    profile: str = ""
    calibration: Literal["holdout", "companion", "companion-per-seed"] = "holdout"
    feature_scores: bool = False
    resamples: int = 1000
    precision: Precision = introduced("float32")

    def __post_init__(self) -> None:
        check_choices(self)
        check_count("resamples", self.resamples)
        if not self.validation and not self.test:
            raise ValueError("evaluate must name a test set, or at least a validation set, got neither")
        if not self.test and (self.shift or self.ood or self.profile):
            raise ValueError("evaluate must name a test set where it names shifted, OOD or profile sets, got none")
        for name in self.datasets():
            find(name)
        for what, names in (("shift", self.shift_sets()), ("ood", self.ood)):
            if len(set(names)) != len(names):
                raise ValueError(f"{what} must name each dataset once, got {', '.join(names)}")
        if self.profile and not self.profile.startswith("path:"):
            raise ValueError(f"profile must be a `path:` set such as path:{self.test}, got {self.profile!r}")

    def shift_sets(self) -> list[str]:
        """Return the shifted sets, with every family's name replaced by its sets."""
        return [d.name for entry in self.shift for d in (sets_of(entry) if entry in FAMILIES else [find(entry)])]

    def reported(self) -> list[str]:
        """What the model itself predicts and is measured on; the validation set alone where there is no test set."""
        profile = [self.profile] if self.profile else []
        return [self.test, *self.shift_sets(), *self.ood, *profile] if self.test else [self.validation]

    def datasets(self) -> list[str]:
        """Every dataset to predict."""
        return [self.validation, *self.reported()] if self.validation and self.test else self.reported()
