"""Rows by what they measure, so that a report with tens of thousands of them finds each at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from regmixup.report.paper import PaperValue
from regmixup.report.significance import compare
from regmixup.report.tables import aggregate
from regmixup.types import Row

Values = dict[int | None, float]
"""One value per seed."""

Compact = list[float | int | None]
"""Mean, standard deviation, n, p against the reference and, if there is one, the paper's number: for the script."""


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


def compact(
    values: Values, reference: Values | None = None, *, paper: PaperValue | None = None, scale: float = 100.0
) -> Compact | None:
    """Mean and standard deviation times `scale`, n, p against the reference, the paper's number; None for no value.

    >>> compact({0: 0.91, 1: 0.93, 2: 0.92}, {0: 0.90, 1: 0.91, 2: 0.91})
    [92.0, 1.0, 3, 0.057]
    """
    if not values:
        return None
    cell = aggregate(list(values.values()), percent=False)
    found = compare(values, reference) if reference and reference is not values else None
    shown: Compact = [
        round(scale * cell.mean, 2),
        round(scale * cell.std, 2) if cell.n > 1 else None,
        cell.n,
        float(f"{found.p:.2g}") if found is not None else None,
    ]
    return [*shown, round(scale * paper.value, 2)] if paper is not None else shown
