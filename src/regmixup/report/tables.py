"""Rows -> a table of mean and standard deviation over seeds, with the best of each column found, not typed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from regmixup import methods
from regmixup.evaluation.evaluate import MEAN
from regmixup.types import Row


@dataclass(frozen=True)
class Column:
    """A quantity: how its rows are recognised, whether larger is better, and how a value is shown."""

    title: str
    select: Callable[[Row], bool]
    higher_is_better: bool | None = True
    percent: bool = True


@dataclass(frozen=True)
class Cell:
    """Mean and standard deviation (ddof = 1) over n seeds, as fractions. `best`: none in the column is better."""

    mean: float
    std: float
    n: int
    percent: bool
    best: bool = False

    @property
    def shown(self) -> str:
        """The mean as it is printed; two cells that print alike are tied."""
        return f"{100 * self.mean:.2f}" if self.percent else f"{self.mean:.3f}"

    @property
    def spread(self) -> str:
        """ "± std", or nothing for a single seed."""
        if self.n < 2:
            return ""
        return f"± {100 * self.std:.2f}" if self.percent else f"± {self.std:.3f}"


@dataclass(frozen=True)
class Table:
    """One line per method; a cell is None where nothing was measured."""

    columns: Sequence[Column]
    lines: dict[str, list[Cell | None]]


def aggregate(values: Sequence[float], *, percent: bool) -> Cell:
    """Mean and sample standard deviation.

    >>> cell = aggregate([0.9, 0.92], percent=True)
    >>> cell.shown, cell.spread
    ('91.00', '± 1.41')
    """
    n = len(values)
    mean = math.fsum(values) / n
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else math.nan
    return Cell(mean, std, n, percent)


def tabulate(rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    """One line per method in order of appearance; every row a column selects is one seed's value."""
    lines: dict[str, list[Cell | None]] = {}
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        lines[method] = []
        for column in columns:
            values = [row.value for row in own if column.select(row)]
            lines[method].append(aggregate(values, percent=column.percent) if values else None)
    for index, column in enumerate(columns):
        cells = [line[index] for line in lines.values()]
        for line, best in zip(lines.values(), _best(cells, column), strict=True):
            cell = line[index]
            line[index] = replace(cell, best=best) if cell is not None else None
    return Table(columns, lines)


def _best(cells: Sequence[Cell | None], column: Column) -> list[bool]:
    """Which cells are the column's best, as printed; nobody where there is nothing to compare."""
    shown = [float(cell.shown) for cell in cells if cell is not None]
    if column.higher_is_better is None or len(shown) < 2:
        return [False] * len(cells)
    top = max(shown) if column.higher_is_better else min(shown)
    return [cell is not None and float(cell.shown) == top for cell in cells]


def ood_sets(rows: Sequence[Row]) -> list[str]:
    """The OOD sets as the rows name them, "(rebuilt)" and the like included."""
    return list(dict.fromkeys(row.dataset for row in rows if row.metric == "auroc"))


def main_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of a study's first table: accuracy, shift, OOD detection, calibration before and after T."""
    test = next((row.dataset for row in rows if row.metric == "accuracy" and not row.corruption), "")

    def on(dataset: str, metric: str, posthoc: str = "none", corruption: str = "") -> Callable[[Row], bool]:
        return lambda r: (r.dataset, r.metric, r.posthoc, r.corruption) == (dataset, metric, posthoc, corruption)

    def detected(dataset: str) -> Callable[[Row], bool]:
        return lambda r: r.dataset == dataset and r.metric == "auroc" and r.score == paper_score(r.method)

    shifted = list(dict.fromkeys(r.dataset for r in rows if r.corruption == MEAN))
    columns = [Column("accuracy", on(test, "accuracy"))]
    columns += [Column(f"accuracy {family}", on(family, "accuracy", corruption=MEAN)) for family in shifted]
    columns += [Column(f"AUROC {name.removesuffix('/test')}", detected(name)) for name in ood_sets(rows)]
    for metric, title in (("ece", "ECE"), ("adaptive_ece", "AdaECE")):
        columns.append(Column(title, on(test, metric), higher_is_better=False))
        columns.append(Column(f"{title} + T", on(test, metric, "temperature"), higher_is_better=False))
    temperature = on(test, "temperature", "temperature")
    return [*columns, Column("T", temperature, higher_is_better=None, percent=False)]


def score_columns(rows: Sequence[Row], score: str) -> list[Column]:
    """AUROC of one score on every OOD set."""

    def detected(dataset: str) -> Callable[[Row], bool]:
        return lambda r: (r.dataset, r.metric, r.score) == (dataset, "auroc", score)

    return [Column(name.removesuffix("/test"), detected(name)) for name in ood_sets(rows)]


def shift_columns(family: str, corruption: str) -> list[Column]:
    """Accuracy at each severity of one corruption."""

    def at(severity: int) -> Callable[[Row], bool]:
        wanted = (family, corruption, severity, "accuracy", "none")
        return lambda r: (r.dataset, r.corruption, r.severity, r.metric, r.posthoc) == wanted

    return [Column(str(severity), at(severity)) for severity in range(1, 6)]


def paper_score(method: str) -> str:
    """The OOD score the paper uses for a method; Dempster-Shafer for methods it does not know."""
    known = methods.METHODS.get(method)
    return known.score if known is not None else "dempster_shafer"
