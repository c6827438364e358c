"""What the tables of results are made of: their columns, and the cells of a method."""

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import NamedTuple

from claims import Training, prose

from regmixup.recipes import RECIPES
from regmixup.report.aggregation import Aggregation, Quantity, mean_cell
from regmixup.report.significance import mean_interval
from regmixup.types import MEAN, Row

RECIPE = "cifar10-resnet18"
FIELD = (RECIPE, "cifar100-resnet18")
"""The recipes of the headline tables."""


class Column(NamedTuple):
    """A column of a table: its title, what it shows, its factor, and the score, "" for the metric's usual one."""

    title: str
    quantity: Quantity
    scale: int = 100
    score: str = ""

    def rows(self, aggregation: Aggregation, label: str) -> list[Row]:
        """Return a method's rows, one per seed."""
        return aggregation.rows(self.quantity._replace(score=self.score), label)


def columns(test: str, shift: Sequence[str], ood: Sequence[str]) -> list[Column]:
    """Return the columns of a table of results."""
    shifted = [Column(f"{name} accuracy", Quantity(f"{name} (rebuilt)", "accuracy", corruption=MEAN)) for name in shift]
    detected = [Column(f"{name.partition('/')[0]} AUROC", Quantity(name, "auroc")) for name in ood]
    ends = [Column("ECE", Quantity(test, "ece")), Column("AUGRC by MSP", Quantity(test, "augrc"), 1000)]
    return [Column("accuracy", Quantity(test, "accuracy")), *shifted, *detected, *ends]


def standard_columns(recipe: str) -> list[Column]:
    """Return the columns for a recipe on CIFAR."""
    family = RECIPES[recipe].recipe.train_set.partition("/")[0]
    other = {"cifar10": "cifar100", "cifar100": "cifar10"}[family]
    return columns(f"{family}/test", [f"{family}-c"], [f"{other}/test", "svhn/test", "tiny-imagenet/val"])


def headings(own: Iterable[Column]) -> list[str]:
    """Return the titles of columns as prose writes them."""
    return [f"{prose(first)} {rest}".strip() for first, _, rest in (column.title.partition(" ") for column in own)]


def fingerprints(rows: Iterable[Iterable[Row]]) -> str:
    """Return the runs behind some rows."""
    return " ".join(dict.fromkeys(f"`{row.run}`" for own in rows for row in own))


def spreads(own: Sequence[Column], rows: Sequence[Sequence[Row]]) -> list[str]:
    """Return the number of seeds, and a mean with its deviation for each column. rows: of the columns."""
    return [str(len(rows[0])), *map(_spread, own, rows)]


def _spread(column: Column, rows: Sequence[Row]) -> str:
    if not rows:
        return "–"
    cell = mean_cell([column.scale * row.value for row in rows], percent=False)
    return f"{cell.mean:.2f}" + (f" ± {cell.std:.2f}" if cell.n > 1 else "")


def cell(column: Column, rows: Sequence[Row], count: int | None = None) -> str:
    """Return a mean with its interval: over seeds, or over test images for a single seed.

    count: the seeds of its line; a cell with another number of them says so.
    """
    if not rows:
        return "–"
    if column.quantity.metric == "temperature":  # chosen, not estimated
        return f"{mean(row.value for row in rows):.3f}"
    low, high, _ = interval(column, rows)
    bounds = f"[{low:.2f}, {high:.2f}]" if len(rows) > 1 else f"({low:.2f}, {high:.2f})"
    seeds = f", n {len(rows)}" if count not in (None, len(rows)) else ""
    return f"{column.scale * mean(row.value for row in rows):.2f} {bounds}{seeds}"


def interval(column: Column, rows: Sequence[Row]) -> tuple[float, float, int]:
    """Return the interval of a mean and its number of seeds; of a single seed the row's own, over test images.

    Student's interval may leave the range of the metric; what lies outside is cut off, which costs no coverage.
    """
    values = [column.scale * row.value for row in rows]
    bounds = mean_interval(values) or tuple(
        column.scale * (bound if bound is not None else rows[0].value) for bound in (rows[0].low, rows[0].high)
    )
    return max(bounds[0], 0.0), min(bounds[1], float(column.scale)), len(rows)


def measured(
    own: Sequence[Column], training: Training, aggregation: Aggregation, labels: Iterable[str]
) -> list[list[str]]:
    """Return a line for each method: seeds, a cell per column, the runs."""
    lines = []
    for label in labels:
        rows = [column.rows(aggregation, label) for column in own]
        cells = [cell(column, r, len(rows[0])) for column, r in zip(own, rows, strict=True)]
        lines.append([label, str(training.epochs), str(len(rows[0])), *cells, fingerprints(rows) or "missing"])
    return lines
