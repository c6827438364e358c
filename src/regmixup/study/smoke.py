"""Smoke scale: cut a plan down to seconds on a CPU.

The runs keep their methods, objectives, heads, constraints and posthoc maps. They train a tiny network for two epochs
on embedded data, with two seeds and the corners of every grid. All substitutions are in the tables below. The results
say nothing about any method; they show that a study file works from its first run to its report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from regmixup import recipes
from regmixup.config import values_of
from regmixup.data.catalogue import FAMILIES, find
from regmixup.study.planned_run import Evaluation, PlannedRun

if TYPE_CHECKING:
    from regmixup.training.config import TrainConfig

SEEDS = 2
"""Two, so that there are standard deviations."""

_MIRRORED, _PHOTOGRAPHS = "digits-mirrored/test", "photographs/test"
_CORRUPTED = tuple(f"digits-c/{name}/{severity}" for name in ("contrast", "gaussian_noise") for severity in (1, 5))


@dataclass(frozen=True)
class StandIn:
    """The sets that replace those of a family, by role."""

    train: str = "digits/train"
    validation: str = "digits/val"
    test: str = "digits/test"
    shift: tuple[str, ...] = _CORRUPTED
    ood: str = _PHOTOGRAPHS


STAND_INS = {
    # Two train sets, so that CIFAR-10 and CIFAR-100 stay apart: each is the other's validation set.
    "cifar10": StandIn(ood=_MIRRORED),
    "cifar100": StandIn(train="digits/val", validation="digits/train", ood=_MIRRORED),
    "digits-mirrored": StandIn(shift=(_MIRRORED,), ood=_MIRRORED),
    "tiny-imagenet": StandIn(ood="digits-c/impulse_noise/5"),
}
"""Families whose replacements differ from the defaults of `StandIn`."""

TRAINING: dict[str, Any] = {"epochs": 2, "batch_size": 150, "members": 2}
"""Changes to the digits recipe, which replaces every recipe; `members` applies to ensembles only."""

_OF_SIZE = {"train_set", "network", "epochs", "warmup_epochs", "batch_size", "cutout"}
_OF_FILES = {"image_size", "crop_area", "color_jitter"}
_KEPT = {field.name for field in fields(recipes.Recipe)} - _OF_SIZE - _OF_FILES
"""The fields of a recipe that keep the values of a grid; other fields, such as the head, are kept anyway."""


def shrink(plan: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Return the plan at smoke scale: corners of grids only, every run cut down, equal runs once."""
    runs: dict[object, PlannedRun] = {}
    for planned in (_shrink_run(planned) for planned in plan if planned.point.corner):
        # Different recipes may become equal.
        runs.setdefault((planned.label, planned.config, planned.evaluate), planned)
    return list(runs.values())


def _shrink_run(planned: PlannedRun) -> PlannedRun:
    kept = {name: value for name, value in planned.point.fields.items() if name in _KEPT}
    return replace(
        planned,
        config=_config(planned.config, kept),
        companion=_config(planned.companion, kept) if planned.companion is not None else None,
        evaluate=_evaluation(planned.evaluate, planned.config.train_set),
    )


def _stand_in(dataset: str) -> StandIn:
    """Return what replaces a dataset, or the datasets of a family."""
    return STAND_INS.get(dataset if dataset in FAMILIES else find(dataset).family, StandIn())


def _config(config: TrainConfig, kept: dict[str, Any]) -> TrainConfig:
    tiny = values_of(recipes.get("digits"))
    tiny |= TRAINING | {"train_set": _stand_in(config.train_set).train, "precision": "auto"} | kept
    return replace(config, **tiny | {"members": min(config.members, TRAINING["members"])})


def _evaluation(evaluation: Evaluation, train_set: str) -> Evaluation:
    """Replace every set; sets with the same replacement become one."""
    stand_in = _stand_in(train_set)
    return replace(
        evaluation,
        validation=stand_in.validation if evaluation.validation else "",
        test=stand_in.test if evaluation.test else "",
        shift=tuple(dict.fromkeys(name for entry in evaluation.shift for name in _stand_in(entry).shift)),
        ood=tuple(dict.fromkeys(_stand_in(name).ood for name in evaluation.ood)),
        profile=f"path:{stand_in.test}" if evaluation.profile else "",
        resamples=min(evaluation.resamples, 50),
        precision="float32",
    )
