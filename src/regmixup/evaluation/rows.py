"""The rows of an evaluation: a list that prints as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from html import escape
from importlib import import_module
from typing import Any

from torch import Tensor

from regmixup.evaluation.set_scores import SetScores
from regmixup.types import Quantity, Row

_COLUMNS = ("dataset", "shift", "posthoc or score", "metric", "value", "interval", "n")
_SHOWN = 60


class Rows(list[Row]):
    """A list of rows. resampled: the values of each on the bootstrap's resamples, (R,) by `row.quantity`.

    scores: those of every sample, for the figures of the same evaluation.

    >>> Rows([Row(dataset="digits/test", metric="accuracy", value=0.975, low=0.95, high=1.0, n=360)])
    dataset      shift  posthoc or score  metric    value   interval          n
    digits/test         none              accuracy  0.9750  0.9500 to 1.0000  360
    """

    def __init__(
        self,
        rows: Iterable[Row] = (),
        resampled: Mapping[Quantity, Tensor] | None = None,
        scores: SetScores | None = None,
    ) -> None:
        super().__init__(rows)
        self.resampled = resampled if resampled is not None else {}
        self.scores = scores

    def __repr__(self) -> str:
        """Return a line of text per row, values as fractions."""
        lines = [_COLUMNS, *map(_cells, self[:_SHOWN])]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
        shown = ["  ".join(cells).rstrip() for cells in padded]
        if len(self) > _SHOWN:
            shown.append(f"... {len(self):,} rows in all; .to_pandas() has every one")
        return "\n".join(shown)

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        lines = [_COLUMNS, *map(_cells, self[:_SHOWN])]
        cells = ["".join(f"<td>{escape(cell)}</td>" for cell in line) for line in lines]
        return f"<table><tr>{'</tr><tr>'.join(cells)}</tr></table><p>{len(self):,} rows in all</p>"

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with a column for each field of `Row`."""
        return import_module("pandas").DataFrame([asdict(row) for row in self])


def _cells(row: Row) -> tuple[str, ...]:
    severity = "" if row.severity is None else f" {row.severity}"
    interval = "" if row.low is None or row.high is None else f"{row.low:.4f} to {row.high:.4f}"
    place = row.dataset, row.corruption + severity, row.score or row.posthoc
    return (*place, row.metric, f"{row.value:.4f}", interval, "" if row.n is None else f"{row.n:,}")
