"""What a study chose, on what and by what: alpha, eta, c and r by validation accuracy, sigma_0 and T by validation ECE.

A study that selects predicts its validation sets and nothing else (`Study` refuses any other set), so no test, shifted
or OOD image can have a part in a choice. In other studies T and a fitted sigma_0 were chosen likewise for each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from regmixup.storage import read_rows, write_json
from regmixup.study.plan import PlannedRun, Study
from regmixup.types import Row


@dataclass(frozen=True, kw_only=True)
class Selected:
    """The choice for one method and recipe.

    values: the fields that were chosen. by: the metric, mean over the seeds; score: its value there. on: the dataset.
    candidates: how many points were compared. temperature: mean over seeds, by ECE. calibration: whose validation
    predictions those were, see `Evaluation`.
    """

    recipe: str
    network: str
    train_set: str
    method: str
    on: str
    seeds: tuple[int, ...]
    values: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    score: float | None = None
    candidates: int = 1
    temperature: float | None = None
    calibration: str = "holdout"


def select(study: Study, rows: Sequence[Row]) -> list[Selected]:
    """The choices of a study, from its rows; none for a method whose grid is not complete yet."""
    groups: dict[tuple[str, str], dict[str, list[PlannedRun]]] = {}
    for planned in study.runs():
        if planned.evaluate.validation:
            place = (planned.recipe, planned.method if study.select else planned.label)
            groups.setdefault(place, {}).setdefault(planned.label, []).append(planned)
    found = [_choice(candidates, rows) for candidates in groups.values()]
    return [choice for choice in found if choice is not None]


def write_selected(study: Study, folder: Path) -> None:
    """`selected.json` in a study's folder, from the rows that lie there."""
    rows = read_rows(folder / "rows.csv") if (folder / "rows.csv").is_file() else []
    if found := select(study, rows):
        write_json(folder / "selected.json", [asdict(choice) for choice in found])


def _choice(candidates: dict[str, list[PlannedRun]], rows: Sequence[Row]) -> Selected | None:
    one = next(iter(candidates.values()))[0]
    validation, axes = one.evaluate.validation, [axis for axis, _ in one.point.values]
    by = "ece" if axes and all(axis.of_posthoc for axis in axes) else "accuracy"
    scores: dict[str, float] = {}
    if not one.evaluate.test:
        own = [row for row in rows if row.dataset == validation and row.posthoc == "none" and row.metric == by]
        values = {label: _values(own, runs) for label, runs in candidates.items()}
        if any(len(found) != len(candidates[label]) for label, found in values.items()):
            return None
        scores = {label: fmean(found) for label, found in values.items()}
        sign = -1 if by == "ece" else 1
        chosen = candidates[max(scores, key=lambda label: sign * scores[label])]
    else:
        (chosen,) = candidates.values()
    best = chosen[0]
    temperatures = _values([row for row in rows if row.metric == "temperature"], chosen)
    priors = _values([row for row in rows if row.metric == "prior_variance"], chosen)
    fitted = {"prior_variance": fmean(priors)} if priors and "prior_variance" not in best.point.named() else {}
    if best.posthoc is None or not best.posthoc.needs_validation:
        fitted = {}
    return Selected(
        recipe=best.recipe,
        network=best.config.network,
        train_set=best.config.train_set,
        method=best.method,
        on=validation,
        seeds=tuple(planned.config.seed for planned in chosen),
        values=best.point.named() | fitted,
        by=by if len(candidates) > 1 else "ece" if fitted else "",
        score=scores.get(best.label) if len(candidates) > 1 else None,
        candidates=len(candidates),
        temperature=fmean(temperatures) if temperatures else None,
        calibration=best.evaluate.calibration,
    )


def _values(rows: Iterable[Row], runs: Sequence[PlannedRun]) -> list[float]:
    """The values of a label's seeds, in no more rows than there are seeds."""
    one = runs[0]
    seeds = {planned.config.seed for planned in runs}
    place = (one.label, one.config.network, one.config.train_set)
    return [row.value for row in rows if (row.method, row.network, row.train_set) == place and row.seed in seeds]
