"""`regmixup evaluate`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regmixup import methods, posthoc, predictions, recipes
from regmixup.cli.parsing import parse
from regmixup.config import check_count
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.registry import BINNED, BINNED_INTERVALS
from regmixup.names import printable
from regmixup.posthoc import FittedPosthoc
from regmixup.posthoc.base import FitOn
from regmixup.prediction_files import LabelColumn
from regmixup.rows import evaluate
from regmixup.storage import check_writable, write_rows
from regmixup.types import Predictions, Row


@dataclass(frozen=True)
class EvaluateVerb:
    """Score logits from any model, ours or not: accuracy, calibration, shift and OOD detection.

    Files: .safetensors, .npz, .pt (keys logits or probs, labels), .npy (logits), .csv and .tsv (names of columns, one
    of them label; then numbers). OOD files need no labels. Prints how a file was read where that was ambiguous.

    Example: regmixup evaluate --predictions mine.npz --ood svhn.npz --val val.npz

    Example: regmixup evaluate --predictions test.npz --method kfac-llla --train train.npz --val val.npz
    """

    predictions: Path
    """In-distribution test predictions with labels."""
    labels: Literal["first", "last"] | Path | None = None
    """Where labels are if no column or key says so: first or last (column of a table), or a file, for --predictions."""
    ood: tuple[Path, ...] = ()
    """Predictions for out-of-distribution sets; labels are not needed."""
    shift: tuple[Path, ...] = ()
    """Predictions for shifted versions of the test set, with labels; family__corruption__severity.npz are averaged."""
    val: Path | None = None
    """Validation predictions; the temperature is fitted on these, by ECE."""
    method: str | None = None
    """Apply this method's posthoc step to the predictions before scoring them, see `regmixup list methods`."""
    recipe: str = "digits"
    """The recipe whose selected values the method uses, see `regmixup list recipes`."""
    train: Path | None = None
    """Train predictions with features, for scores of features (Mahalanobis, kNN, ...) and methods fitted on them."""
    resamples: int = 1000
    """Bootstrap resamples behind the 95 % intervals; 0 for none."""
    fit_on: FitOn = "validation"
    """Files that look like a test, shifted or OOD set are rejected as --val unless this says so in words."""
    out: Path | None = None
    """Also write all rows to this CSV file."""


def main(args: Sequence[str]) -> None:
    """Evaluate, print every row, and write them to --out."""
    verb = parse(EvaluateVerb, "evaluate", args)
    check_count("resamples", verb.resamples, least=0)
    if verb.out is not None:
        check_writable(verb.out)
    column = verb.labels if not isinstance(verb.labels, Path) else None
    validation = _labelled(verb.val, column) if verb.val is not None else None
    train = _labelled(verb.train, column) if verb.train is not None else None
    rows = evaluate(
        _labelled(verb.predictions, verb.labels),
        validation=validation,
        train=train,
        posthoc=_posthoc(verb, train, validation),
        shift=[_labelled(path, column) for path in verb.shift],
        ood=[_load(path, column or "none") for path in verb.ood],
        bootstrap=Bootstrap(resamples=verb.resamples) if verb.resamples else None,
        fit_on=verb.fit_on,
    )
    _show(rows, methods.get(verb.method).score if verb.method is not None else None)
    if verb.out is not None:
        write_rows(verb.out, rows)
        print(f"rows  {verb.out}")


def _posthoc(verb: EvaluateVerb, train: Predictions | None, validation: Predictions | None) -> FittedPosthoc | None:
    if verb.method is None:
        return None
    recipes.get(verb.recipe)
    spec = methods.get(verb.method).at(verb.recipe).posthoc
    if spec is None:
        return None
    return posthoc.build(spec.name, **spec.fields).fit(train=train, validation=validation, fit_on=verb.fit_on)


def _load(path: Path, labels: LabelColumn | Path | None) -> Predictions:
    """Read predictions, and print how where that was ambiguous."""
    found = predictions.load(path, labels=labels)
    if "read_as" in found.info:
        print(f"{path}: {found.info['read_as']}", file=sys.stderr)
    return found


def _labelled(path: Path, labels: LabelColumn | Path | None) -> Predictions:
    found = _load(path, labels)
    if int(found.labels.min()) < 0:
        raise ValueError(f"{path} must hold a label for every sample; only OOD files may leave them out")
    return found


_HEADS = ("dataset", "shift", "posthoc or score", "metric", "value", "95 % interval")
_MOST_ROWS = 1000  # beyond these, rich takes longer to draw the table than its values took to compute


def _show(rows: list[Row], chosen_score: str | None) -> None:
    """Print a table that fits the terminal; in a pipe or for many rows, a line per row with full names."""
    lines = [_cells(row, chosen_score) for row in rows]
    captions = [] if chosen_score is None else ["* the score of this method in tables"]
    if any(row.metric in BINNED and row.low is not None for row in rows):
        captions.append(BINNED_INTERVALS)
    console = Console()
    if console.is_terminal and len(lines) <= _MOST_ROWS:
        console.print(_table(lines, "\n".join(captions)))
        return
    widths = [max(map(len, column)) for column in zip(_HEADS, *lines, strict=True)]
    for line in (_HEADS, ["-" * width for width in widths], *lines):
        words = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        words[4:] = [cell.rjust(width) for cell, width in zip(line[4:], widths[4:], strict=True)]
        print("  ".join(words).rstrip())
    for caption in captions:
        print(caption)


def _table(lines: list[list[str]], caption: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, caption=Text(caption) if caption else None, caption_justify="left"
    )
    for title in _HEADS[:2]:
        table.add_column(title, overflow="fold")
    for title in _HEADS[2:4]:
        table.add_column(title, no_wrap=True)
    for title in _HEADS[4:]:
        table.add_column(title, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def _cells(row: Row, chosen_score: str | None) -> list[str]:
    score = f"{row.score} *" if row.score == chosen_score else row.score
    severity = "" if row.severity is None else f" {row.severity}"
    interval = "" if row.low is None or row.high is None else f"{_number(row, row.low)} – {_number(row, row.high)}"
    unit = "" if row.metric in _PLAIN else " %"
    value = _number(row, row.value) + unit
    places = printable(row.dataset), printable(row.corruption + severity)
    return [*places, score or row.posthoc, row.metric, value, interval]


# Metrics that are not fractions, and so not shown in percent.
_PLAIN = ("nll", "brier", "temperature", "prior_variance", "fisher_criterion")


def _number(row: Row, value: float) -> str:
    return f"{value:.4f}" if row.metric in _PLAIN else f"{100 * value:.2f}"
