"""The tables of a report: which quantities they show, and how their cells are laid out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regmixup.methods import REFERENCE
from regmixup.names import shown
from regmixup.report.aggregation import CALIBRATION, SCALED, Aggregation, Cell, is_ensemble, known_method
from regmixup.report.significance import LEVEL, Design
from regmixup.report.writers import Block, Heading, LayoutCell, Line, TableLayout
from regmixup.types import MEAN, Quantity, Row, higher_is_better

_TESTS = {"paired": "a t-test paired by seed", "welch": "Welch's t-test"}
ONE_TEMPERATURE = (
    "One T, of one companion, serves several seeds, which are then not independent: no test and no best in this column."
)


@dataclass(frozen=True)
class Column:
    """A quantity, and how a value is shown."""

    title: str
    quantity: Quantity
    percent: bool = True

    @property
    def heading(self) -> str:
        """Return the title with an arrow in the better direction."""
        return self.title + {True: " ↑", False: " ↓", None: ""}[higher_is_better(self.quantity.metric)]


@dataclass(frozen=True)
class Table:
    """One line per method; a cell is None where nothing was measured."""

    columns: Sequence[Column]
    lines: dict[str, list[Cell | None]]
    caption: str = ""
    label: str = ""

    def layout(self) -> TableLayout:
        """Lay out mean ± std (n), below it the paper's value and the difference; ensembles under a rule."""
        head = (Heading("method"), *(Heading(column.heading) for column in self.columns))
        lines = [Line((method,), tuple(map(_layout_cell, cells))) for method, cells in self.lines.items()]
        parts = ([line for line in lines if is_ensemble(line.labels[0]) == wanted] for wanted in (False, True))
        blocks = tuple(Block(tuple(part)) for part in parts if part)
        return TableLayout((head,), blocks, self.caption, self.label, tuple(self._remarks()))

    def _remarks(self) -> Iterator[str]:
        """Yield what the signs in the cells mean, as far as they occur."""
        cells = [cell for line in self.lines.values() for cell in line if cell is not None]
        plain = ", ".join(column.title for column in self.columns if not column.percent)
        yield f"Mean ± standard deviation (number of seeds), in percent{f' but for {plain}' if plain else ''}."
        if any(cell.best for cell in cells):
            ensembles = ", underlined: best of all with ensembles" if any(cell.best_overall for cell in cells) else ""
            yield f"Bold: best single model{ensembles}; equal numbers are tied."
        if any(cell.paper is not None for cell in cells):
            yield "Second line: the paper's number, and ours minus it."
        tests = {cell.against.test for cell in cells if cell.against is not None}
        if tests:
            used = " or, for ensembles and where seeds differ, ".join(_TESTS[test] for test in _TESTS if test in tests)
            yield (
                f"*: differs from {REFERENCE}, p < {LEVEL} by {used}, after Holm's correction over the comparisons of "
                "one column. Every table compares the numbers that it shows."
            )


def _layout_cell(cell: Cell | None) -> LayoutCell:
    if cell is None:
        return LayoutCell("–")
    beside = " ".join(part for part in (cell.spread, f"({cell.n})", "*" if cell.differs else "") if part)
    below = f"paper {cell.paper.text}, {cell.difference}" if cell.paper is not None else ""
    return LayoutCell(cell.shown, cell.best, cell.best_overall, beside, below, cell.notes)


def tabulate(
    found: Aggregation,
    columns: Sequence[Column],
    *,
    caption: str = "",
    label: str = "",
    changed: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """Make a table with one line per method, in order of appearance.

    changed: how the training of a method differs from its recipe; a note at each of its cells.
    """
    lines: dict[str, list[Cell | None]] = {method: [] for method in found.labels}
    for column in columns:
        cells = found.column([column.quantity], percent=column.percent)
        for method, cell in cells.items():
            if cell is not None:
                notes = _notes(cell, found.rows(column.quantity, method), (changed or {}).get(method, ()), found.design)
                cell = replace(cell, notes=tuple(notes))
            lines[method].append(cell)
    return Table(columns, lines, caption, label)


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


_MOST_NAMED = 4
PERCENT = "\N{NO-BREAK SPACE}%"


def conclude(title: str, metric: str, cells: Mapping[str, Cell | None], *, unit: str = PERCENT) -> str:
    r"""Say in one sentence what the tests of a column show: the best value, and who differs from the reference method.

    title: of what the column measures, as the beginning of a sentence; metric: its name in rows. Return "" where there
    is nothing to compare.

    >>> from regmixup.report.significance import Comparison
    >>> ours = Cell(0.95, 0.01, 5, True, against=Comparison(0.01, "paired"), better=True)
    >>> conclude("Accuracy", "accuracy", {"dnn": Cell(0.93, 0.01, 5, True), "ours": ours})
    'Accuracy is highest for ours, 95.00\xa0%; higher than dnn: ours.'
    """
    known = {label: cell for label, cell in cells.items() if cell is not None}
    if len(known) < 2:
        return ""
    higher = higher_is_better(metric)
    top = (max if higher else min)(known, key=lambda label: known[label].mean)
    start = f"{title} is {'highest' if higher else 'lowest'} for {top}, {known[top].shown}{unit}"
    tested = {label: cell for label, cell in known.items() if cell.against is not None}
    if not tested:
        return f"{start}; whether that is chance cannot be tested (it needs two seeds of each, and {REFERENCE})."
    words = {True: "higher than", False: "lower than", None: "not shown to differ from"}
    groups: dict[bool | None, list[str]] = {larger: [] for larger in words}
    for label, cell in tested.items():
        groups[None if cell.better is None else cell.better == higher].append(label)
    parts = [f"{words[larger]} {REFERENCE}: {_named(labels)}" for larger, labels in groups.items() if labels]
    return f"{start}; {'; '.join(parts)}."


def _named(labels: Sequence[str]) -> str:
    """
    >>> _named(["a", "b"]), _named([*"abcdef"])
    ('a and b', 'a, b, c, d and 2 others')
    """
    if len(labels) > _MOST_NAMED + 1:
        labels = [*labels[:_MOST_NAMED], f"{len(labels) - _MOST_NAMED} others"]
    return " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))


def main_columns(found: Aggregation) -> list[Column]:
    """Return the columns of a study's first table: accuracy, shift, OOD detection, calibration before and after T."""
    measured = found.quantities
    test = next((q.dataset for q in measured if q.metric == "accuracy" and not q.corruption), "")
    ood = dict.fromkeys(q.dataset for q in measured if q.metric == "auroc")  # "(rebuilt)" included
    columns = [Column("accuracy", Quantity(test, "accuracy"))]
    columns += [Column(f"accuracy {n}", Quantity(n, "accuracy", corruption=MEAN)) for n in shifted_sets(found)]
    columns += [Column(f"AUROC {name.removesuffix('/test')}", Quantity(name, "auroc")) for name in ood]
    columns += [Column(title, Quantity(test, *own)) for title, own in CALIBRATION.items()]
    return [*columns, Column("T", Quantity(test, "temperature", SCALED), percent=False)]


def shift_columns(found: Aggregation) -> list[Column]:
    """Return the columns of a study's second table: calibration on every shifted set, before and after T."""
    return [
        Column(f"{title} {name}", Quantity(name, *own, corruption=MEAN))
        for title, own in CALIBRATION.items()
        for name in shifted_sets(found)
    ]


def shifted_sets(found: Aggregation) -> list[str]:
    """Return the shifted sets, families of corruptions as one."""
    return list(dict.fromkeys(quantity.dataset for quantity in found.quantities if quantity.corruption == MEAN))


SELECTION_CAPTION = "Selected on validation sets, mean over seeds; scores in percent"
_SELECTION_HEADS = ("recipe", "method", "selected", "by", "score", "T (by ECE)", "on", "seeds")
_NOTHING = "–"


@dataclass(frozen=True)
class SelectionTable:
    """The values a study selected on validation sets. choices: the contents of its selected.json."""

    choices: Sequence[Mapping[str, Any]]

    def heads(self) -> list[str]:
        """Return the headings of all columns that are not empty: a study without grids has only chosen T."""
        return [head for head, *_ in self._columns()]

    def lines(self) -> list[tuple[str, ...]]:
        """Return one line per choice, under `heads`."""
        return list(zip(*(cells for _, *cells in self._columns()), strict=True))

    def layout(self) -> TableLayout:
        lines = tuple(Line(line[:2], tuple(map(LayoutCell, line[2:]))) for line in self.lines())
        return TableLayout((tuple(map(Heading, self.heads())),), (Block(lines),), SELECTION_CAPTION, "tab:selected")

    def _columns(self) -> list[tuple[str, ...]]:
        columns = zip(_SELECTION_HEADS, *map(_selection_line, self.choices), strict=True)
        return [column for column in columns if any(cell != _NOTHING for cell in column[1:])]


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
    cells = (choice["recipe"], choice["method"], values, by, score, temperature, on, str(len(choice["seeds"])))
    return tuple(text or _NOTHING for text in cells)
