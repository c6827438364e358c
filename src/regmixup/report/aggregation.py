"""The one aggregation of rows: means over seeds, compared and marked, for every table, file and figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regmixup import methods
from regmixup.methods import REFERENCE
from regmixup.paper import PaperValue, paper_value_of
from regmixup.report.significance import LEVEL, Values, best_of, compare_column, moments
from regmixup.report.units import PERCENT, Unit, unit_of
from regmixup.types import Quantity, Row, higher_is_better

SCALED = "temperature"
"""The posthoc of values that depend on T."""
DETECTION = {"auroc": "AUROC", "aupr": "AUPR", "fpr_at_tpr": "FPR at 95 % TPR"}
"""Metrics of OOD detection with their titles."""


@dataclass(frozen=True)
class Cell:
    """Mean and standard deviation (ddof = 1) over n seeds. unit: in which they are shown.

    best: no single model of the column is better. best_overall: nor is an ensemble, in a column that has one.
    p: of no difference from the reference method, None where they are not compared; better: the direction of a
    significant difference. paper: the paper's number. notes: what to know before comparing.
    """

    mean: float
    std: float
    n: int
    unit: Unit = PERCENT
    best: bool = False
    best_overall: bool = False
    p: float | None = None
    better: bool | None = None
    paper: PaperValue | None = None
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Return the mean as printed; two cells that print alike are tied."""
        return self.unit.write(self.mean)

    @property
    def spread(self) -> str:
        """Return "± std", or "" for a single seed."""
        return f"± {self.unit.write(self.std)}" if self.n > 1 else ""

    @property
    def beside(self) -> str:
        """Return what print has beside the mean: "± std", the number of seeds, a star where it differs."""
        differs = self.p is not None and self.p < LEVEL
        return " ".join(filter(None, (self.spread, f"({self.n})", "*" if differs else "")))

    @property
    def against_paper(self) -> str:
        """Return the paper's number, and ours minus it in the unit of `shown`; "" where the paper has no number."""
        if self.paper is None:
            return ""
        return f"paper {self.paper.text}, {self.unit.write(self.mean - self.paper.value, signed=True)}"


@dataclass(frozen=True)
class Design:
    """The comparisons that the values of a setting allow.

    one_temperature: methods with one T for several seeds. untested: methods that are never compared with the
    reference, with the reason. ensembles: methods of several networks, which are not the best single model.
    scores: the OOD score of each method, as its study recorded it.
    """

    one_temperature: frozenset[str] = frozenset()
    untested: Mapping[str, str] = field(default_factory=dict)
    ensembles: frozenset[str] = frozenset()
    scores: Mapping[str, str] = field(default_factory=dict)

    def score_of(self, label: str) -> str:
        """Return a method's own OOD score: as recorded, or that of METHODS; Dempster-Shafer for unknown methods.

        >>> [Design().score_of(label) for label in ("mixup", "mixup(alpha=1)", "something-new")]
        ['entropy', 'entropy', 'dempster_shafer']
        """
        known = known_method(label)
        return self.scores.get(label) or (known.score if known is not None else "dempster_shafer")

    def with_score(self, quantity: Quantity, label: str) -> Quantity:
        """Return a quantity; one of detection that names no score with the method's own score, as in the paper."""
        if quantity.score or quantity.metric not in DETECTION:
            return quantity
        return quantity._replace(score=self.score_of(label))

    def describe_scores(self, labels: Iterable[str]) -> str:
        """Say by which score each method detects.

        >>> Design().describe_scores(["dnn", "mixup", "regmixup", "cutmix"])
        'by dempster_shafer (mixup, cutmix by entropy)'
        """
        by_score: dict[str, list[str]] = {}
        for label in labels:
            by_score.setdefault(self.score_of(label), []).append(label)
        usual, *others = sorted(by_score, key=lambda score: -len(by_score[score]))
        exceptions = "; ".join(f"{', '.join(by_score[score])} by {score}" for score in others)
        return f"by {usual} ({exceptions})" if exceptions else f"by {usual}"


class Aggregation:
    """The rows of one setting, by what they measure. design: which comparisons they allow.

    labels: every method that has a row, in order of appearance.
    """

    def __init__(self, rows: Sequence[Row], design: Design | None = None) -> None:
        self.design = design or Design()
        self.labels = list(dict.fromkeys(row.method for row in rows))
        self._rows: dict[Quantity, dict[str, list[Row]]] = {}
        for row in rows:
            self._rows.setdefault(row.quantity, {}).setdefault(row.method, []).append(row)

    @property
    def quantities(self) -> list[Quantity]:
        """Return everything that was measured, in the order of the rows."""
        return list(self._rows)

    def rows(self, quantity: Quantity, label: str) -> list[Row]:
        """Return a method's rows of a quantity, one per seed; by the score of `Design.with_score`."""
        return self._rows.get(self.design.with_score(quantity, label), {}).get(label, [])

    def values(self, quantity: Quantity, label: str) -> Values:
        """Return a method's values by seed; empty where nothing was measured."""
        rows = self.rows(quantity, label)
        values = {row.seed: row.value for row in rows}
        assert len(values) == len(rows), f"several rows of one seed of {label}, {quantity}"
        return values

    def average(self, quantities: Sequence[Quantity], label: str) -> Values:
        """Return the mean over quantities by seed, for the seeds that have all of them."""
        values = [self.values(quantity, label) for quantity in quantities]
        common = [seed for seed in values[0] if all(seed in by_seed for by_seed in values)] if values else []
        return {seed: math.fsum(by_seed[seed] for by_seed in values) / len(values) for seed in common}

    def column(self, quantities: Sequence[Quantity]) -> dict[str, Cell | None]:
        """Return a cell per method: the mean over the quantities, compared with the other cells of the column.

        quantities: of one metric. A single one has the paper's number beside it. None: nothing was measured.
        """
        seeds = {label: self.average(quantities, label) for label in self.labels}
        unit = unit_of(quantities[0].metric)
        measured = {label: mean_cell([*values.values()], unit) for label, values in seeds.items() if values}
        if len(quantities) == 1:
            for label, cell in measured.items():
                measured[label] = replace(cell, paper=paper_value_of(self.rows(quantities[0], label)[0]))
        scaled = any(quantity.posthoc == SCALED for quantity in quantities)
        # Seeds that share one T are not independent: no test and no best.
        if measured and not (scaled and any(seeds.get(label) for label in self.design.one_temperature)):
            comparisons = compare_column(seeds, untested=self.design.untested)
            measured = self._mark(measured, comparisons, higher_is_better(quantities[0].metric))
        return {label: measured.get(label) for label in seeds}

    def _mark(
        self, cells: Mapping[str, Cell], comparisons: Mapping[str, float], higher: bool | None
    ) -> dict[str, Cell]:
        """Mark the best cells of a column, and those that differ from the reference method's."""
        shown = {label: float(cell.shown) for label, cell in cells.items()}
        singles = {label: number for label, number in shown.items() if label not in self.design.ensembles}
        best = best_of(singles, higher_is_better=higher)
        overall = best_of(shown, higher_is_better=higher) if len(singles) < len(shown) else set()
        marked = {}
        for label, cell in cells.items():
            p, better = comparisons.get(label), None
            if p is not None and p < LEVEL and higher is not None:
                better = (cell.mean > cells[REFERENCE].mean) == higher
            marked[label] = replace(cell, best=label in best, best_overall=label in overall, p=p, better=better)
        return marked


def mean_cell(values: Sequence[float], unit: Unit) -> Cell:
    """Return the mean and sample standard deviation of some values.

    >>> cell = mean_cell([0.9, 0.92], PERCENT)
    >>> cell.shown, cell.spread
    ('91.00', '± 1.41')
    """
    mean, variance = moments(values)
    return Cell(mean, math.sqrt(variance), len(values), unit)


def known_method(label: str) -> methods.Method | None:
    """Return the method that a label names; `mixup(alpha=1)` is mixup."""
    return methods.METHODS.get(label.partition("(")[0])
