"""The data of the page's script, as JSON: figures, and the tables below the main one that the reader can switch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regmixup.evaluation.curves import COVERAGE, FPR
from regmixup.report.aggregation import DETECTION, SCALED, Aggregation, Cell, mean_cell
from regmixup.report.figures import QUANTILES, mixing_figure, pooled_figures, pooled_history
from regmixup.report.results import Results, Setting
from regmixup.report.tables import CALIBRATION, ONE_TEMPERATURE, ood_sets, tested_set
from regmixup.report.units import unit_of
from regmixup.types import MEAN, Quantity

MOST_SHOWN = 8
"""Methods that figures show before the reader chooses: as many as there are colours."""
LEAST_P = 0.001
"""Smaller p are shown as "p < 0.001"."""
ON_SHIFT = {"accuracy": ("accuracy", "none"), **CALIBRATION}
"""Metrics of the table of corruptions by title: metric and posthoc."""

ScriptCell = list[float | int | None]
"""A cell for the script: mean, standard deviation, n, p against the reference, verdict (1 better, -1 worse, 0 neither),
marks (1 best single model, 2 best of all, 3 both) and, if there is one, the paper's number."""


def script_data(results: Results) -> dict[str, Any]:
    """Return the data of the whole page: constants, and the figures and switchable tables of every setting."""
    settings = []
    for setting in results.settings:
        runs = [setting.runs_of(label) for label in setting.labels]
        settings.append(
            {
                **ScriptTables(setting.labels, setting.aggregation).data(),
                "curves": [pooled_history([run.history for run in group]) for group in runs],
                "mixing": _mixing(setting),
                **pooled_figures([[run.figures for run in group if run.figures] for group in runs]),
            }
        )
    return {**script_constants(), "settings": settings}


def script_constants() -> dict[str, Any]:
    """Return what the script knows whatever the results: where curves are sampled, and which p it spells out."""
    return {
        "fpr": [round(rate, 5) for rate in FPR],
        "coverage": list(COVERAGE),
        "quantiles": list(QUANTILES),
        "leastP": LEAST_P,
        "shown": MOST_SHOWN,
    }


def script_cell(cell: Cell | None) -> ScriptCell | None:
    """Return a cell as the script takes it, in its unit.

    >>> script_cell(Cell(0.92, 0.01, 3, best=True))
    [92.0, 1.0, 3, None, 0, 1]
    """
    if cell is None:
        return None
    factor = cell.unit.factor
    shown: ScriptCell = [
        round(factor * cell.mean, 2),
        round(factor * cell.std, 2) if cell.n > 1 else None,
        cell.n,
        float(f"{cell.p:.2g}") if cell.p is not None else None,
        {True: 1, False: -1, None: 0}[cell.better],
        cell.best + 2 * cell.best_overall,
    ]
    return [*shown, round(factor * cell.paper.value, 2)] if cell.paper is not None else shown


@dataclass(frozen=True)
class ScriptTables:
    """The tables to switch and the curves that the script draws of rows. labels: the methods or models compared."""

    labels: Sequence[str]
    aggregation: Aggregation

    def data(self) -> dict[str, Any]:
        """Return the names of the methods, and what is drawn of their rows."""
        return {
            "methods": list(self.labels),
            "ood": ood_sets(self.aggregation),
            "shift": self.shift(),
            "fisher": self.fisher(),
            "detection": self.detection(),
            "calibration": self.calibration(),
        }

    def column(self, quantities: Sequence[Quantity]) -> list[ScriptCell | None]:
        """Return the mean over some quantities for every method, compared as in the tables."""
        cells = self.aggregation.column(quantities)
        return [script_cell(cells.get(label)) for label in self.labels]

    def families(self) -> dict[str, tuple[list[str], list[int]]]:
        """Return the corruptions, in the order of the rows, and the severities of every shifted family."""
        families: dict[str, tuple[dict[str, None], set[int]]] = {}
        for quantity in self.aggregation.quantities:
            if quantity.severity is not None and quantity.corruption != MEAN:
                corruptions, severities = families.setdefault(quantity.dataset, ({}, set()))
                corruptions[quantity.corruption] = None
                severities.add(quantity.severity)
        return {family: (list(corruptions), sorted(levels)) for family, (corruptions, levels) in families.items()}

    def shift(self) -> list[dict[str, Any]]:
        """Return cells[method][corruption][severity] for every family and metric.

        Severity 0 is the mean over severities, the last corruption the mean over corruptions; the mean of all has a row
        of its own, as in the paper.
        """
        families = []
        for family, (corruptions, severities) in self.families().items():
            metrics = []
            for title, (metric, posthoc) in ON_SHIFT.items():
                whole = Quantity(family, metric, posthoc, "", MEAN)
                if whole in self.aggregation.quantities:
                    note = ONE_TEMPERATURE if posthoc == SCALED and self.aggregation.design.one_temperature else ""
                    cells = self._shift_cells(whole, corruptions, severities)
                    metrics.append({"title": title, "note": note, "cells": cells})
            if metrics:
                places = {"corruptions": corruptions, "severities": severities}
                families.append({"family": family, **places, "metrics": metrics})
        return families

    def _shift_cells(self, whole: Quantity, corruptions: list[str], severities: list[int]) -> list[Any]:
        """Return cells[method][corruption][severity]. whole: the mean over all corruptions and severities."""
        columns = []
        for name in corruptions:
            levels = [whole._replace(corruption=name, severity=level) for level in severities]
            columns.append([self.column(levels), *(self.column([quantity]) for quantity in levels)])
        means = [self.column([whole])]
        for level in severities:
            means.append(self.column([whole._replace(corruption=name, severity=level) for name in corruptions]))
        columns.append(means)
        return [[[cells[index] for cells in column] for column in columns] for index in range(len(self.labels))]

    def fisher(self) -> list[dict[str, Any]]:
        """Return values[method][corruption][severity], mean and standard deviation, for every family that has it."""
        families = []
        for family, (corruptions, severities) in self.families().items():
            whole = Quantity(family, "fisher_criterion")
            places = [[whole._replace(corruption=name, severity=level) for level in severities] for name in corruptions]
            values = [[[self._spread(place, label) for place in line] for line in places] for label in self.labels]
            if any(cell for lines in values for line in lines for cell in line):
                grid = {"corruptions": corruptions, "severities": severities}
                families.append({"family": family, **grid, "values": values})
        return families

    def _spread(self, quantity: Quantity, label: str) -> list[float | None]:
        """Return mean and standard deviation; nothing where it was not measured."""
        values = self.aggregation.values(quantity, label)
        if not values:
            return []
        cell = mean_cell([*values.values()], unit_of(quantity.metric))
        return [round(cell.mean, 2), round(cell.std, 2) if cell.n > 1 else None]

    def detection(self) -> dict[str, Any]:
        """Return cells[metric][score][set][method]; the score "" is each method's own, which "named" says in words."""
        sets = ood_sets(self.aggregation)
        scores = list(dict.fromkeys(q.score for q in self.aggregation.quantities if q.metric in DETECTION))
        cells = {
            metric: {
                score: [self.column([Quantity(name, metric, score=score)]) for name in sets] for score in ("", *scores)
            }
            for metric in DETECTION
        }
        return {
            "scores": scores,
            "metrics": [{"name": name, "title": title} for name, title in DETECTION.items()],
            "paper": [self.aggregation.design.score_of(label) for label in self.labels],
            "named": self.aggregation.design.describe_scores(self.labels),
            "cells": cells,
        }

    def calibration(self) -> dict[str, Any]:
        """Return ECE on the test set, without and with temperature."""
        test = tested_set(self.aggregation)
        quantities = {posthoc: Quantity(test, "ece", posthoc) for posthoc in ("none", SCALED)}
        measured = self.aggregation.quantities
        return {posthoc: self.column([ece]) for posthoc, ece in quantities.items() if ece in measured}


def _mixing(setting: Setting) -> list[dict[str, Any]]:
    """Return every method that mixes pairs of images, with Beta's parameter; AugMix's alpha is something else."""
    objectives = {label: setting.runs_of(label)[0].config["objective"] for label in setting.labels}
    return [
        {"method": label, **mixing_figure(float(objective["alpha"]))}
        for label, objective in objectives.items()
        if {"alpha", "lam"} <= objective.keys()
    ]
