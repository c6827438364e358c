"""Selection on validation sets: alpha, eta, c and r by accuracy, sigma_0 and T by ECE.

A study that selects predicts its validation sets and nothing else (`Study` rejects any other set), so no test, shifted
or OOD image can influence a choice. In other studies T and a fitted sigma_0 are chosen likewise for each run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from regmixup import run_folder
from regmixup.storage import read_rows, write_json
from regmixup.study.check import is_current
from regmixup.study.plan import Study
from regmixup.study.planned import PlannedRun
from regmixup.types import Row, higher_is_better


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The choice for one method and recipe.

    values: the chosen values, by short names; fields: the same, by the names that `take_selected` needs. by: the
    metric, mean over seeds; score: its value. on: the dataset. candidates: how many points were compared.
    temperature: mean over seeds, by ECE. calibration: whose validation predictions those were, see `Evaluation`.
    study, scale: those of the study that chose.
    """

    recipe: str
    network: str
    train_set: str
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
    study: str = ""
    scale: str = "full"


def select(study: Study, rows: Sequence[Row]) -> list[Choice]:
    """Return the choices of a study from its rows; none for a method whose grid is not complete yet."""
    groups: dict[tuple[str, str], dict[str, list[PlannedRun]]] = {}
    for planned in study.runs():
        if planned.evaluate.validation:
            place = (planned.recipe, planned.method if study.select else planned.label)
            groups.setdefault(place, {}).setdefault(planned.label, []).append(planned)
    found = [_choice(name, candidates, rows) for (_, name), candidates in groups.items()]
    return [replace(choice, study=study.name, scale=study.scale) for choice in found if choice is not None]


def write_selected(study: Study, folder: Path) -> None:
    """Write `selected.json` into a study's folder, from the rows there; delete that of a grid which was shorter."""
    if not is_current(study, folder):  # rows of the study before its file was edited choose nothing
        return
    with run_folder.reading(folder / "rows.csv") as path:
        rows = read_rows(path)
    if found := select(study, rows):
        write_json(folder / "selected.json", [asdict(choice) for choice in found])
    else:
        (folder / "selected.json").unlink(missing_ok=True)


def take_selected(study: Study, path: Path) -> Study:
    """Return the study with what another one selected, for the recipes and methods that both have. path: selected.json.

    It has a name of its own, as it trains other models. A method without a choice in `path` keeps its values, but where
    the study confirms a search, that is an error, and so is a choice of another study.
    """
    entries = _entries(path)
    chosen = {(entry["recipe"], entry["method"]): entry.get("fields") for entry in entries}
    for entry in entries if study.scale == "full" else ():
        if entry.get("scale", "full") != "full":
            raise ValueError(f"{path} was chosen at smoke scale, which says nothing about {entry['recipe']}")
        if study.confirms and entry.get("study", study.confirms) != study.confirms:
            raise ValueError(
                f"{path} must hold choices of {study.confirms}, which {study.name} confirms, "
                f"got those of {entry['study']}"
            )
    parts = []
    for part in study.parts:
        values = {method: fields for method in part.methods if (fields := chosen.get((part.recipe, method)))}
        parts.append(replace(part, values=values))
    if not any(part.values for part in parts):
        places = ", ".join(f"{method} of {recipe}" for recipe, method in chosen) or "nothing"
        raise ValueError(f"{path} must hold a choice for a method and recipe of {study.name}, got {places}")
    lacking = [
        f"{name} of {part.recipe}" for part in parts for name in part.methods if (part.recipe, name) not in chosen
    ]
    if study.confirms and lacking:  # while a search goes on, it has chosen for some methods alone
        raise ValueError(f"{path} must hold a choice for every method of {study.name}, got none for {lacking[0]}")
    lines = [
        f"{method} of {part.recipe}: {', '.join(f'{name} {value}' for name, value in fields.items())}"
        for part in parts
        for method, fields in part.values.items()
    ]
    about = f"{study.about.strip()}\n\nTaken from a study that selected on validation sets: {'; '.join(lines)}."
    return replace(study, name=f"{study.name}-selected", parts=tuple(parts), about=about)


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"selected must be the selected.json of a study, got {path}: {error}") from error
    known = isinstance(found, list) and all(
        isinstance(one, dict) and {"recipe", "method"} <= one.keys() and isinstance(one.get("fields") or {}, dict)
        for one in found
    )
    if not known:
        raise ValueError(f"selected must be the selected.json of a study, a list of its choices, got {path}")
    return found


def _choice(name: str, candidates: dict[str, list[PlannedRun]], rows: Sequence[Row]) -> Choice | None:
    """Return the best of some labels, each with its runs; None while one of them lacks a seed.

    name: the method, or where a study does not select, the label, whose values were given and not chosen.
    """
    by, score, chosen = "", None, next(iter(candidates.values()))
    if len(candidates) > 1:
        axes = [axis for runs in candidates.values() for axis, _ in runs[0].point.values]
        by = "ece" if all(axis.of_posthoc for axis in axes) else "accuracy"
        known = {label: mean for label, runs in candidates.items() if (mean := _mean(rows, runs, by)) is not None}
        if len(known) < len(candidates):
            return None
        best = (max if higher_is_better(by) else min)(known, key=known.__getitem__)
        score, chosen = known[best], candidates[best]
    one = chosen[0]
    values, fields = (one.point.named(), one.point.fields()) if name == one.method else ({}, {})
    if one.posthoc is not None and one.posthoc.needs_validation:
        by = by or "ece"
        values |= {"prior_variance": _mean(rows, chosen, "prior_variance")}
    return Choice(
        recipe=one.recipe,
        network=one.config.network,
        train_set=one.config.train_set,
        method=name,
        on=one.evaluate.validation,
        seeds=tuple(planned.config.seed for planned in chosen),
        values=values,
        fields=fields,
        by=by,
        score=score,
        candidates=len(candidates),
        temperature=_mean(rows, chosen, "temperature"),
        calibration=one.evaluate.calibration,
    )


def _mean(rows: Iterable[Row], runs: Sequence[PlannedRun], metric: str) -> float | None:
    """Return the mean of a metric over a label's seeds, None if one is missing.

    Accuracy and ECE are those on the validation set; T and a prior variance were fitted there, whatever their row says.
    """
    one = runs[0]
    place = (one.label, one.config.network, one.config.train_set)
    own = [row for row in rows if row.metric == metric and (row.method, row.network, row.train_set) == place]
    if metric in ("accuracy", "ece"):
        own = [row for row in own if row.dataset == one.evaluate.validation and row.posthoc == "none"]
    values = [row.value for planned in runs for row in own if row.seed == planned.config.seed]
    return fmean(values) if len(values) == len(runs) else None
