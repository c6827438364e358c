"""The one aggregation of rows: means over seeds, compared and marked, for every table, file and figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from regmixup import methods
from regmixup.methods import REFERENCE
from regmixup.names import signed
from regmixup.paper import PaperValue, paper_value_of
from regmixup.report.significance import LEVEL, Comparison, Design, Values, compare_column, find_best, moments
from regmixup.types import Quantity, Row, higher_is_better

SCALED = "temperature"
"""The posthoc of values that depend on T."""
DETECTION = {"auroc": "AUROC", "aupr": "AUPR", "fpr_at_tpr": "FPR at 95 % TPR"}
"""Metrics of OOD detection with their titles."""
SELECTIVE = ("aurc", "augrc", "failure_auroc")
"""Metrics of how well a score finds a model's errors."""
SCORES = {"dempster_shafer": "Dempster-Shafer", "entropy": "entropy", "max_probability": "MSP"}
"""Scores as prose writes them."""
CALIBRATION = {
    "ECE": ("ece", "none"),
    "ECE + T": ("ece", SCALED),
    "AdaECE": ("adaptive_ece", "none"),
    "AdaECE + T": ("adaptive_ece", SCALED),
}
"""Metrics of calibration by title: metric and posthoc."""


@dataclass(frozen=True)
class Cell:
    """Mean and standard deviation (ddof = 1) over n seeds, as fractions.

    best: no single model of the column is better. best_overall: nor is an ensemble, in a column that has one.
    against: the comparison with the reference method; better: its direction, where it is significant.
    paper: the paper's number. notes: what to know before comparing.
    """

    mean: float
    std: float
    n: int
    percent: bool
    best: bool = False
    best_overall: bool = False
    against: Comparison | None = None
    better: bool | None = None
    paper: PaperValue | None = None
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Return the mean as printed; two cells that print alike are tied."""
        return self._number(self.mean)

    @property
    def spread(self) -> str:
        """Return "± std", or "" for a single seed."""
        return f"± {self._number(self.std)}" if self.n > 1 else ""

    def _number(self, value: float) -> str:
        return f"{100 * value:.2f}" if self.percent else f"{value:.3f}"

    @property
    def differs(self) -> bool:
        """Return whether it differs significantly from the reference method."""
        return self.against is not None and self.against.p < LEVEL

    @property
    def beside(self) -> str:
        """Return what print has beside the mean: "± std", the number of seeds, a star where it differs."""
        return " ".join(filter(None, (self.spread, f"({self.n})", "*" if self.differs else "")))

    @property
    def against_paper(self) -> str:
        """Return the paper's number, and ours minus it in the unit of `shown`; "" where the paper has no number."""
        if self.paper is None:
            return ""
        difference = self.mean - self.paper.value
        return f"paper {self.paper.text}, {signed(100 * difference) if self.percent else signed(difference, 3)}"


class Aggregation:
    """The rows of one setting, by what they measure. design: which comparisons they allow.

    labels: every method that has a row, in order of appearance.
    """

    def __init__(self, rows: Iterable[Row], design: Design | None = None) -> None:
        self.design = design or Design()
        self._rows: dict[Quantity, dict[str, list[Row]]] = {}
        labels: dict[str, None] = {}
        for row in rows:
            self._rows.setdefault(row.quantity, {}).setdefault(row.method, []).append(row)
            labels[row.method] = None
        self.labels = list(labels)

    @property
    def quantities(self) -> list[Quantity]:
        """Return everything that was measured, in the order of the rows."""
        return list(self._rows)

    def rows(self, quantity: Quantity, label: str) -> list[Row]:
        """Return a method's rows of a quantity, one per seed; without a score, by the `usual_score` of its metric."""
        if not quantity.score:
            quantity = quantity._replace(score=usual_score(quantity.metric, label))
        return self._rows.get(quantity, {}).get(label, [])

    def values(self, quantity: Quantity, label: str) -> Values:
        """Return a method's values by seed; empty where nothing was measured."""
        rows = self.rows(quantity, label)
        values = {row.seed: row.value for row in rows}
        if len(values) < len(rows) and None not in values:
            raise ValueError(
                f"{quantity.metric} on {quantity.dataset} must have one row per seed of {label}, got {len(rows)} rows "
                f"of {len(values)} seeds: networks {sorted({row.network for row in rows})}, train sets "
                f"{sorted({row.train_set for row in rows})}"
            )
        return values

    def average(self, quantities: Sequence[Quantity], label: str) -> Values:
        """Return the mean over quantities by seed, for the seeds that have all of them."""
        values = [self.values(quantity, label) for quantity in quantities]
        common = [seed for seed in values[0] if all(seed in by_seed for by_seed in values)] if values else []
        return {seed: math.fsum(by_seed[seed] for by_seed in values) / len(values) for seed in common}

    def column(
        self,
        quantities: Sequence[Quantity],
        *,
        labels: Iterable[str] | None = None,
        percent: bool = True,
    ) -> dict[str, Cell | None]:
        """Return a cell per method: the mean over the quantities, compared with the other cells of the column.

        quantities: of one metric. A single quantity has the paper's number beside it. labels: the methods; default, all
        with a row. None stands where nothing was measured.
        """
        labels = self.labels if labels is None else list(labels)
        seeds = {label: self.average(quantities, label) for label in labels}
        cells: dict[str, Cell | None] = {}
        for label in labels:
            rows = self.rows(quantities[0], label) if len(quantities) == 1 else []
            values = [row.value for row in rows] or [*seeds[label].values()]
            cell = mean_cell(values, percent=percent) if values else None
            cells[label] = replace(cell, paper=paper_value_of(rows[0])) if cell and rows else cell
        scaled = any(quantity.posthoc == SCALED for quantity in quantities)
        if scaled and any(seeds.get(label) for label in self.design.one_temperature):
            return cells  # seeds that share one T are not independent: no test and no best
        higher = higher_is_better(quantities[0].metric) if quantities else None
        return _judge(cells, seeds, higher, self.design)


def mean_cell(values: Sequence[float], *, percent: bool) -> Cell:
    """Return the mean and sample standard deviation of some values.

    >>> cell = mean_cell([0.9, 0.92], percent=True)
    >>> cell.shown, cell.spread
    ('91.00', '± 1.41')
    """
    mean, variance = moments(values)
    return Cell(mean, math.sqrt(variance), len(values), percent)


def _judge(
    cells: Mapping[str, Cell | None], seeds: Mapping[str, Values], higher: bool | None, design: Design
) -> dict[str, Cell | None]:
    """Mark the best cells of a column, and those that differ from the reference method. seeds: the values behind."""
    ensembles = [*map(is_ensemble, cells)]
    shown = [float(cell.shown) if cell is not None else None for cell in cells.values()]
    marks = find_best(shown, ensembles, higher_is_better=higher)
    comparisons = compare_column(seeds, untested=design.untested)
    reference = cells.get(REFERENCE)
    judged: dict[str, Cell | None] = {}
    for (method, cell), mark in zip(cells.items(), marks, strict=True):
        if cell is not None:
            cell = replace(cell, best=mark.bold, best_overall=mark.underline, against=comparisons.get(method))
            if cell.differs and reference is not None and higher is not None:
                cell = replace(cell, better=(cell.mean > reference.mean) == higher)
        judged[method] = cell
    return judged


def known_method(label: str) -> methods.Method | None:
    """Return the method that a label names; `mixup(alpha=1)` is mixup."""
    return methods.METHODS.get(label.partition("(")[0])


def is_ensemble(label: str) -> bool:
    """Return whether a method trains several networks."""
    known = known_method(label)
    return known is not None and known.train.get("members", 1) > 1


def usual_score(metric: str, label: str) -> str:
    """Return the score behind a metric where none is named; "" for metrics of no score.

    Detection of OOD images is by each method's own score, as in the paper. Metrics of a model's errors, of which the
    paper has none, are by the maximum probability (MSP), as others report them.

    >>> usual_score("auroc", "regmixup"), usual_score("augrc", "regmixup"), usual_score("ece", "regmixup")
    ('dempster_shafer', 'max_probability', '')
    """
    if metric in SELECTIVE:
        return "max_probability"
    return paper_score(label) if metric in DETECTION else ""


def paper_score(label: str) -> str:
    """Return a method's OOD score, the paper's where it has one; Dempster-Shafer for unknown methods.

    >>> paper_score("mixup"), paper_score("mixup(alpha=1)"), paper_score("something-new")
    ('entropy', 'entropy', 'dempster_shafer')
    """
    known = known_method(label)
    return known.score if known is not None else "dempster_shafer"
