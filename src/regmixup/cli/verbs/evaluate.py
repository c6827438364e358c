"""`regmixup evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regmixup import methods, posthoc, predictions, recipes
from regmixup.cli.parsing import parse
from regmixup.config import check_count
from regmixup.evaluation.bootstrap import Bootstrap
from regmixup.evaluation.evaluate import evaluate
from regmixup.evaluation.named_metrics import BINNED, BINNED_INTERVALS
from regmixup.names import printable
from regmixup.posthoc import FittedPosthoc
from regmixup.posthoc.held_out import FitOn
from regmixup.storage import check_writable, write_rows
from regmixup.types import Predictions, Row


@dataclass(frozen=True)
class EvaluateVerb:
    """Score logits from any model, ours or not: accuracy, calibration, shift and OOD detection.

    Files: .safetensors, .npz (keys logits, labels), .npy (logits), .csv (header label,name,...; then label, logits).
    Labels may be left out of OOD files.

    Example: regmixup evaluate --predictions mine.npz --ood svhn.npz --val val.npz

    Example: regmixup evaluate --predictions test.npz --method kfac-llla --train train.npz --val val.npz
    """

    predictions: Path
    """In-distribution test predictions with labels."""
    ood: tuple[Path, ...] = ()
    """Predictions for out-of-distribution sets; labels are not needed."""
    shift: tuple[Path, ...] = ()
    """Predictions for shifted versions of the test set, with labels; family__corruption__severity.npz are averaged."""
    val: Path | None = None
    """Validation predictions; the temperature is fitted on these, by ECE."""
    method: str | None = None
    """Do to the predictions what this method does before they are scored, see `regmixup list methods`."""
    recipe: str = "digits"
    """The recipe whose selected values the method takes, see `regmixup list recipes`."""
    train: Path | None = None
    """Train predictions with features, for scores of features (Mahalanobis, kNN, ...) and methods fitted on them."""
    resamples: int = 1000
    """Bootstrap resamples behind the 95 % intervals; 0 for none."""
    fit_on: FitOn = "validation"
    """Files named or filled like a test, shifted or OOD set are refused as --val unless this says so in words."""
    out: Path | None = None
    """Also write all rows to this CSV file."""


def main(args: Sequence[str]) -> None:
    """Evaluate, print every row, and write them where asked."""
    verb = parse(EvaluateVerb, "evaluate", args)
    check_count("resamples", verb.resamples, least=0)
    if verb.out is not None:
        check_writable(verb.out)
    validation = _labelled(verb.val) if verb.val is not None else None
    train = _labelled(verb.train) if verb.train is not None else None
    rows = evaluate(
        _labelled(verb.predictions),
        validation=validation,
        train=train,
        posthoc=_posthoc(verb, train, validation),
        shift=[_labelled(path) for path in verb.shift],
        ood=[predictions.load(path) for path in verb.ood],
        bootstrap=Bootstrap(resamples=verb.resamples) if verb.resamples else None,
        fit_on=verb.fit_on,
    )
    console = Console()
    if not console.is_terminal:
        console.width = 10_000  # a line per row, so that a pipe or a file has whole names
    console.print(_table(rows, methods.get(verb.method).score if verb.method is not None else None))
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


def _labelled(path: Path) -> Predictions:
    found = predictions.load(path)
    if int(found.labels.min()) < 0:
        raise ValueError(f"{path} must hold a label for every sample; only OOD files may leave them out")
    return found


def _table(rows: list[Row], chosen_score: str | None) -> Table:
    captions = [] if chosen_score is None else ["* the score of this method in tables"]
    if any(row.metric in BINNED and row.low is not None for row in rows):
        captions.append(BINNED_INTERVALS)
    caption = Text("\n".join(captions)) if captions else None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("dataset", overflow="fold")
    table.add_column("shift", overflow="fold")
    for title in ("posthoc or score", "metric"):
        table.add_column(title, no_wrap=True)
    for title in ("value", "95 % interval"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        score = f"{row.score} *" if row.score == chosen_score else row.score
        severity = "" if row.severity is None else f" {row.severity}"
        interval = "" if row.low is None or row.high is None else f"{_number(row, row.low)} – {_number(row, row.high)}"
        unit = "" if row.metric in _PLAIN else " %"
        table.add_row(
            Text(printable(row.dataset)),
            Text(printable(row.corruption + severity)),
            score or row.posthoc,
            row.metric,
            _number(row, row.value) + unit,
            interval,
        )
    return table


# What is no share of anything and is shown as it is.
_PLAIN = ("nll", "brier", "temperature", "prior_variance", "fisher_criterion")


def _number(row: Row, value: float) -> str:
    return f"{value:.4f}" if row.metric in _PLAIN else f"{100 * value:.2f}"
