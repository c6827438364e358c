"""Rows by what they measure, so that a report with tens of thousands of them finds each at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from regmixup.report.significance import Values
from regmixup.report.tables import Cell
from regmixup.types import Row

Compact = list[float | int | None]
"""For the script: mean, standard deviation, n, p against the reference, verdict (1 better, -1 worse, 0 neither), marks
(1 best single model, 2 best of all, 3 both) and, if there is one, the paper's number."""


class Quantity(NamedTuple):
    """What a row measures, whoever it was measured on."""

    dataset: str
    metric: str
    posthoc: str = "none"
    score: str = ""
    corruption: str = ""
    severity: int | None = None


class Measured:
    """The rows of one setting."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._values: dict[Quantity, dict[str, Values]] = {}
        for row in rows:
            quantity = Quantity(row.dataset, row.metric, row.posthoc, row.score, row.corruption, row.severity)
            self._values.setdefault(quantity, {}).setdefault(row.method, {})[row.seed] = row.value

    @property
    def quantities(self) -> list[Quantity]:
        """Everything that was measured, in the order of the rows."""
        return list(self._values)

    def values(self, quantity: Quantity, label: str) -> Values:
        """By seed; empty where nothing was measured."""
        return self._values.get(quantity, {}).get(label, {})

    def average(self, quantities: Sequence[Quantity], label: str) -> Values:
        """The mean over quantities, for the seeds that have all of them."""
        found = [self.values(quantity, label) for quantity in quantities]
        seeds = [seed for seed in (found[0] if found else {}) if all(seed in own for own in found)]
        return {seed: math.fsum(own[seed] for own in found) / len(found) for seed in seeds}


def compact(cell: Cell | None) -> Compact | None:
    """A cell as the script takes it, in percent.

    >>> compact(Cell(0.92, 0.01, 3, percent=True, best=True))
    [92.0, 1.0, 3, None, 0, 1]
    """
    if cell is None:
        return None
    shown: Compact = [
        round(100 * cell.mean, 2),
        round(100 * cell.std, 2) if cell.n > 1 else None,
        cell.n,
        float(f"{cell.against.p:.2g}") if cell.against is not None else None,
        0 if cell.better is None else 1 if cell.better else -1,
        cell.best + 2 * cell.best_overall,
    ]
    return [*shown, round(100 * cell.paper.value, 2)] if cell.paper is not None else shown
