"""Selection on validation sets: points of a grid by accuracy, or by ECE where only the posthoc map varies; T by ECE.

A study that selects predicts its validation sets and nothing else (`Study` rejects any other set), so no test, shifted
or OOD image can influence a choice. In other studies T and a fitted sigma_0 are chosen likewise for each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from regmixup.storage import read_json, write_json
from regmixup.study.plan import Study
from regmixup.study.planned_run import PlannedRun
from regmixup.types import Row, higher_is_better


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The choice for one method and recipe. method: a label, mixup(alpha=1), where the study does not select.

    values: the chosen values, by short names; fields: all fields of the chosen point, which `take_selected` sets.
    by: the metric, mean over seeds; score: its value. on: the dataset. candidates: how many points were compared.
    temperature: mean over seeds, by ECE. calibration: whose validation predictions those were, see `Evaluation`.
    study, scale: those of the study that chose.
    """

    recipe: str
    method: str
    on: str
    seeds: tuple[int, ...]
    values: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    score: float | None = None
    candidates: int = 1
    temperature: float | None = None
    calibration: str = "holdout"
    study: str
    scale: str


def write_selected(study: Study, folder: Path, rows: Sequence[Row]) -> None:
    """Write `selected.json` into a study's folder; delete an earlier one if nothing is chosen."""
    if choices := select(study, rows):
        write_json(folder / "selected.json", [asdict(choice) for choice in choices])
    else:
        (folder / "selected.json").unlink(missing_ok=True)


def select(study: Study, rows: Sequence[Row]) -> list[Choice]:
    """Return the choices of a study from its rows; none for a method whose grid is not complete yet.

    Where a study does not select, each label is a choice of its own, among one candidate: its values were given.
    """
    groups: dict[tuple[str, str], dict[str, list[PlannedRun]]] = {}
    for planned in study.runs():
        if planned.evaluate.validation:
            name = planned.method if study.select else planned.label
            groups.setdefault((planned.recipe, name), {}).setdefault(planned.label, []).append(planned)
    choices = [_choice(study, name, candidates, rows) for (_, name), candidates in groups.items()]
    return [choice for choice in choices if choice is not None]


def _choice(study: Study, name: str, candidates: dict[str, list[PlannedRun]], rows: Sequence[Row]) -> Choice | None:
    """Return the best of some labels, each with its runs; None while one of them lacks a seed."""
    by, score, chosen = "", None, next(iter(candidates.values()))
    if len(candidates) > 1:
        by = "accuracy" if any(runs[0].point.trains for runs in candidates.values()) else "ece"
        means = {label: mean for label, runs in candidates.items() if (mean := _mean(rows, runs, by)) is not None}
        if len(means) < len(candidates):
            return None
        pick_best = max if higher_is_better(by) else min
        best = pick_best(means, key=lambda label: means[label])
        score, chosen = means[best], candidates[best]
    first = chosen[0]
    values = dict(first.point.varied) if study.select else {}
    if first.posthoc is not None and first.posthoc.needs_validation:
        by = by or "ece"
        values["prior_variance"] = _mean(rows, chosen, "prior_variance")
    return Choice(
        recipe=first.recipe,
        method=name,
        on=first.evaluate.validation,
        seeds=tuple(planned.config.seed for planned in chosen),
        values=values,
        fields=dict(first.point.fields) if study.select else {},
        by=by,
        score=score,
        candidates=len(candidates),
        temperature=_mean(rows, chosen, "temperature"),
        calibration=first.evaluate.calibration,
        study=study.name,
        scale=study.scale,
    )


def _mean(rows: Iterable[Row], runs: Sequence[PlannedRun], metric: str) -> float | None:
    """Return the mean of a metric over a label's seeds, None if one is missing.

    Accuracy and ECE are those on the validation set; T and a prior variance were fitted there, whatever their row says.
    """
    first = runs[0]
    line = (first.label, first.config.network, first.config.train_set)
    measured = [row for row in rows if row.metric == metric and (row.method, row.network, row.train_set) == line]
    if metric in ("accuracy", "ece"):
        measured = [row for row in measured if row.dataset == first.evaluate.validation and row.posthoc == "none"]
    values = [row.value for planned in runs for row in measured if row.seed == planned.config.seed]
    return fmean(values) if len(values) == len(runs) else None


def take_selected(study: Study, path: Path) -> Study:
    """Return the study with what another one selected, for the recipes and methods that both have. path: selected.json.

    It has a name of its own, as it trains other models. A method without a choice in `path` keeps its values, but where
    the study confirms a search, that is an error, and so is a choice of another study.
    """
    fields = {(choice.recipe, choice.method): choice.fields for choice in _read_choices(study, path)}
    lines = [(recipe, method) for recipe in study.recipes for method in study.methods_of(recipe)]
    taken = [line for line in lines if fields.get(line)]
    is_complete = all(line in fields for line in lines)  # a search that goes on has chosen for some
    if not taken or (study.confirms and not is_complete):
        places = ", ".join(f"{method} of {recipe}" for recipe, method in fields)
        which = "every method and recipe" if study.confirms else "a method and recipe"
        raise ValueError(f"{path} must hold a choice for {which} of {study.name}, got {places or 'nothing'}")
    selected: dict[str, dict[str, Any]] = {}
    about = f"{study.about.strip()}\n\nTaken from a study that selected on validation sets:"
    for recipe, method in taken:
        selected.setdefault(recipe, {})[method] = fields[recipe, method]
        values = ", ".join(f"{name} {value}" for name, value in fields[recipe, method].items())
        about += f" {method} of {recipe}: {values}."
    return replace(study, name=f"{study.name}-selected", selected=selected, about=about)


def _read_choices(study: Study, path: Path) -> list[Choice]:
    """Read selected.json; raise for choices that a study of full scale must not take."""
    try:
        choices = [Choice(**entry) for entry in read_json(path)]
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"selected must be the selected.json of a study, got {path}: {error}") from error
    if study.scale != "full":
        return choices
    for choice in choices:
        if choice.scale != "full":
            raise ValueError(f"{path} was chosen at smoke scale, which says nothing about {choice.recipe}")
        if study.confirms and choice.study != study.confirms:
            raise ValueError(f"{path} must hold choices of {study.confirms}, got those of {choice.study}")
    return choices
