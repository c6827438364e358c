"""The tables of a report, one line per method, the main table first: what they hold, whatever the format.

templates/ has how they look; `regmixup.report.writers` writes them as text and for the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from regmixup.methods import REFERENCE
from regmixup.names import shown
from regmixup.report.aggregation import DETECTION, SCALED, Aggregation, Cell, Design, known_method
from regmixup.report.results import Results, Setting
from regmixup.report.significance import LEVEL
from regmixup.report.units import units_of
from regmixup.types import MEAN, Quantity, Row, higher_is_better

CALIBRATION = {
    "ECE": ("ece", "none"),
    "ECE + T": ("ece", SCALED),
    "AdaECE": ("adaptive_ece", "none"),
    "AdaECE + T": ("adaptive_ece", SCALED),
}
"""Metrics of calibration by title: metric and posthoc."""
ONE_TEMPERATURE = (
    "One T, of one companion, serves several seeds, which are then not independent: no test and no best in this column."
)


def study_tables(results: Results) -> list[list[Table]]:
    """Return the tables of every setting: the main one and, where sets are shifted, that of calibration there."""
    tables = []
    for setting in results.settings:
        main = _setting_table(results, setting, main_columns(setting.aggregation))
        columns = shift_columns(setting.aggregation)
        shifted = _setting_table(results, setting, columns, "calibration under shift")
        tables.append([main, shifted] if shifted.columns else [main])
    return tables


def _setting_table(results: Results, setting: Setting, columns: Sequence[Column], subject: str = "") -> Table:
    """Make a table of the columns that have a value. subject: distinguishes it from the setting's first table."""
    changed = {run.label: run.changed for run in setting.runs}
    caption = [results.title, setting.title if len(results.settings) > 1 else "", subject]
    label = f"tab:{setting.name} {subject}".strip().replace(" ", "-")
    aggregation = setting.aggregation
    measured = [c for c in columns if any(aggregation.rows(c.quantity, method) for method in aggregation.labels)]
    return tabulate(aggregation, measured, caption=": ".join(filter(None, caption)), label=label, changed=changed)


@dataclass(frozen=True)
class Column:
    """A quantity under a title."""

    title: str
    quantity: Quantity


def arrow(metric: str) -> str:
    """Return the better direction of a metric for the end of a heading; "" where it has none."""
    return {True: " ↑", False: " ↓", None: ""}[higher_is_better(metric)]


def main_columns(aggregation: Aggregation) -> list[Column]:
    """Return the columns of a study's first table: accuracy, shift, OOD detection, calibration before and after T."""
    test = tested_set(aggregation)
    columns = [Column("accuracy", Quantity(test, "accuracy"))]
    columns += [Column(f"accuracy {n}", Quantity(n, "accuracy", corruption=MEAN)) for n in shifted_sets(aggregation)]
    columns += [Column(f"AUROC {n.removesuffix('/test')}", Quantity(n, "auroc")) for n in ood_sets(aggregation)]
    columns += [Column(title, Quantity(test, metric, posthoc)) for title, (metric, posthoc) in CALIBRATION.items()]
    return [*columns, Column("T", Quantity(test, "temperature", SCALED))]


def shift_columns(aggregation: Aggregation) -> list[Column]:
    """Return the columns of a study's second table: calibration on every shifted set, before and after T."""
    return [
        Column(f"{title} {name}", Quantity(name, *metric, corruption=MEAN))
        for title, metric in CALIBRATION.items()
        for name in shifted_sets(aggregation)
    ]


def tested_set(aggregation: Aggregation) -> str:
    """Return the name of the test set; "" where no accuracy was measured."""
    return next((q.dataset for q in aggregation.quantities if q.metric == "accuracy" and not q.corruption), "")


def shifted_sets(aggregation: Aggregation) -> list[str]:
    """Return the shifted sets, families of corruptions as one."""
    return list(dict.fromkeys(quantity.dataset for quantity in aggregation.quantities if quantity.corruption == MEAN))


def ood_sets(aggregation: Aggregation) -> list[str]:
    """Return the out-of-distribution sets, with "(rebuilt)" in their names where they are."""
    return list(dict.fromkeys(quantity.dataset for quantity in aggregation.quantities if quantity.metric == "auroc"))


@dataclass(frozen=True)
class Table:
    """One line of cells per method; a cell is None where nothing was measured. design: that of their aggregation."""

    columns: Sequence[Column]
    lines: dict[str, list[Cell | None]]
    design: Design
    caption: str = ""
    label: str = ""

    @property
    def heads(self) -> list[str]:
        return ["method", *(column.title + arrow(column.quantity.metric) for column in self.columns)]

    @property
    def units(self) -> str:
        return units_of({column.title: column.quantity.metric for column in self.columns})

    def blocks(self) -> list[dict[str, list[Cell | None]]]:
        """Return the lines of single models and, under a rule, those of ensembles."""
        singles: dict[str, list[Cell | None]] = {}
        ensembles: dict[str, list[Cell | None]] = {}
        for method, cells in self.lines.items():
            block = ensembles if method in self.design.ensembles else singles
            block[method] = cells
        return [block for block in (singles, ensembles) if block]

    def notes(self) -> dict[str, str]:
        """Return every note once, in the order of the blocks, with the letter that marks it."""
        letters: dict[str, str] = {}
        for block in self.blocks():
            for cell in chain.from_iterable(block.values()):
                for note in cell.notes if cell is not None else ():
                    letters.setdefault(note, letter(len(letters)))
        return letters

    def remarks(self) -> Iterator[str]:
        """Yield what the signs in the cells mean, as far as they occur."""
        cells = [cell for line in self.lines.values() for cell in line if cell is not None]
        yield f"Mean ± standard deviation (number of seeds), {self.units}."
        if scores := self.describe_scores():
            yield f"AUROC {scores}: each method's own score."
        signs = []
        if any(cell.best for cell in cells):
            signs.append("bold: best single model")
        if any(cell.best_overall for cell in cells):
            signs.append("underlined: best of all with ensembles")
        if signs:
            yield f"{', '.join(signs).capitalize()}; equal numbers are tied."
        if any(cell.paper is not None for cell in cells):
            yield "Second line: the paper's number, and ours minus it."
        if any(cell.p is not None for cell in cells):
            yield (
                f"*: differs from {REFERENCE}, p < {LEVEL} by Welch's t-test, after Holm's correction over the "
                "comparisons of one column. Every table compares the numbers that it shows; a rule in the study's own "
                "text comes before this one."
            )

    def describe_scores(self) -> str:
        """Say by which score each method detects, where some columns leave that to the method; "" where none does."""
        open_columns = (c.quantity.metric in DETECTION and not c.quantity.score for c in self.columns)
        return self.design.describe_scores(self.lines) if any(open_columns) else ""


def tabulate(
    aggregation: Aggregation,
    columns: Sequence[Column],
    *,
    caption: str = "",
    label: str = "",
    changed: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """Make a table with one line per method, in order of appearance.

    changed: how the training of a method differs from its recipe; a note at each of its cells.
    """
    lines: dict[str, list[Cell | None]] = {method: [] for method in aggregation.labels}
    for column in columns:
        cells = aggregation.column([column.quantity])
        for method, cell in cells.items():
            if cell is not None:
                rows, differences = aggregation.rows(column.quantity, method), (changed or {}).get(method, ())
                notes = _notes(cell, rows, differences, aggregation.design)
                cell = replace(cell, notes=tuple(notes))
            lines[method].append(cell)
    return Table(columns, lines, aggregation.design, caption, label)


def _notes(cell: Cell, rows: Sequence[Row], changed: Sequence[str], design: Design) -> Iterator[str]:
    """Yield what a reader should know before comparing a cell."""
    method = rows[0].method
    if method in design.one_temperature and rows[0].posthoc == SCALED:
        yield ONE_TEMPERATURE
    elif method in design.untested:
        yield design.untested[method]
    if cell.n == 1:
        yield "One seed: no spread is known."
    if any("(rebuilt)" in row.dataset for row in rows):
        yield "The set was rebuilt here; it is not the published one."
    known = known_method(method)
    if known is not None and not known.published:
        yield "The paper does not say which values and score it used for this method; docs/methods.md has our rule."
    if changed:
        yield f"Changed recipe: {'; '.join(changed)}."
    if cell.paper is not None and cell.paper.slip is not None:
        yield f"The paper's number is in doubt. {cell.paper.slip}"


def letter(index: int) -> str:
    """Return the mark of a note: a, b, ..., z, aa, ab, ...

    >>> letter(0), letter(25), letter(26)
    ('a', 'z', 'aa')
    """
    return (letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


SELECTION = "Selected on validation sets, mean over seeds; scores in percent"
"""The caption of a selection."""


def selection_table(choices: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the values a study selected on validation sets: the headings, then a line per choice of selected.json.

    Columns that are empty are left out: a study without grids has only chosen T.
    """
    heads = ("recipe", "method", "selected", "by", "score", "T (by ECE)", "on", "seeds")
    lines = [_selection_line(choice) for choice in choices]
    filled = [place for place in range(len(heads)) if any(line[place] for line in lines)]
    return [[line[place] or "–" for place in filled] for line in (heads, *lines)]


def _selection_line(choice: Mapping[str, Any]) -> tuple[str, ...]:
    """
    >>> _selection_line({"recipe": "digits", "method": "mixup", "values": {"alpha": 0.3}, "by": "accuracy",
    ...                  "candidates": 9, "score": 0.9512, "temperature": 1.2, "on": "digits/val",
    ...                  "calibration": "holdout", "seeds": [0, 1]})
    ('digits', 'mixup', 'alpha = 0.3', 'accuracy, of 9', '95.12', '1.200', 'digits/val', '2')
    """
    values = ", ".join(f"{name} = {shown(value)}" for name, value in choice["values"].items())
    by = f"{choice['by']}, of {choice['candidates']}" if choice["candidates"] > 1 else choice["by"]
    score = f"{100 * choice['score']:.2f}" if choice["score"] is not None else ""
    temperature = f"{choice['temperature']:.3f}" if choice["temperature"] is not None else ""
    calibration = choice["calibration"].replace("-", " ")
    on = choice["on"] + (f", {calibration}" if calibration != "holdout" else "")
    return choice["recipe"], choice["method"], values, by, score, temperature, on, str(len(choice["seeds"]))
