"""Rows -> a table of means over seeds, beside the paper's numbers, with the best of each column found, not typed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from regmixup import methods
from regmixup.methods import REFERENCE
from regmixup.report.best import find_best
from regmixup.report.grid import Block, Grid, GridCell, Heading, Line
from regmixup.report.paper import PaperValue, paper_value_of
from regmixup.report.significance import Comparison, Design, Values, compare_column
from regmixup.types import MEAN, Row

LEVEL = 0.05
"""A difference with a smaller p is marked."""
CALIBRATION = {
    "ECE": ("ece", "none"),
    "ECE + T": ("ece", "temperature"),
    "AdaECE": ("adaptive_ece", "none"),
    "AdaECE + T": ("adaptive_ece", "temperature"),
}
"""Metric and posthoc."""
_TESTS = {"paired": "a t-test paired by seed", "welch": "Welch's t-test"}
SCALED = "temperature"
"""The posthoc of what depends on T."""
ONE_TEMPERATURE = (
    "One T, of one companion, serves several seeds, which are then not independent: no test and no best in this column."
)


@dataclass(frozen=True)
class Column:
    """A quantity: how its rows are recognised, whether larger is better, and how a value is shown.

    group: a heading that it shares with its neighbours.
    """

    title: str
    select: Callable[[Row], bool]
    higher_is_better: bool | None = True
    percent: bool = True
    group: str = ""

    @property
    def heading(self) -> str:
        """The title with an arrow to the better side."""
        return self.title + {True: " ↑", False: " ↓", None: ""}[self.higher_is_better]


@dataclass(frozen=True)
class Cell:
    """Mean and standard deviation (ddof = 1) over n seeds, as fractions.

    best: no single model of the column is better. best_overall: nor is an ensemble, in a column that has one.
    against: comparison with the reference method; better: which way, where they differ by more than chance.
    paper: what the paper gives. notes: what to know before comparing.
    """

    mean: float
    std: float
    n: int
    percent: bool
    best: bool = False
    best_overall: bool = False
    against: Comparison | None = None
    better: bool | None = None
    paper: PaperValue | None = None
    notes: tuple[str, ...] = ()

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

    @property
    def differs(self) -> bool:
        """Whether the difference to the reference method is larger than chance explains."""
        return self.against is not None and self.against.p < LEVEL

    @property
    def difference(self) -> str:
        """Ours minus the paper's, in the unit of `shown`; nothing where the paper has no number."""
        if self.paper is None:
            return ""
        own = self.mean - self.paper.value
        return (f"{100 * own:+.2f}" if self.percent else f"{own:+.3f}").replace("-", "−")


@dataclass(frozen=True)
class Table:
    """One line per method; a cell is None where nothing was measured."""

    columns: Sequence[Column]
    lines: dict[str, list[Cell | None]]
    caption: str = ""
    label: str = ""

    def grid(self) -> Grid:
        """Mean ± std (n) in every cell, below it the paper's value and the difference; ensembles under a rule."""
        titles = tuple(Heading(column.heading) for column in self.columns)
        groups = tuple(Heading(name, len(list(run))) for name, run in groupby(c.group for c in self.columns))
        head = [(Heading("method"), *titles)]
        if any(group.text for group in groups):
            head.insert(0, (Heading(""), *groups))
        lines = [Line((method,), tuple(map(_drawn, cells))) for method, cells in self.lines.items()]
        parts = ([line for line in lines if is_ensemble(line.labels[0]) == wanted] for wanted in (False, True))
        blocks = tuple(Block(tuple(part)) for part in parts if part)
        return Grid(tuple(head), blocks, self.caption, self.label, tuple(self._remarks()))

    def _remarks(self) -> Iterator[str]:
        """What the signs in the cells mean, as far as they occur."""
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


def _drawn(cell: Cell | None) -> GridCell:
    if cell is None:
        return GridCell("–")
    beside = " ".join(part for part in (cell.spread, f"({cell.n})", "*" if cell.differs else "") if part)
    below = f"paper {cell.paper.text}, {cell.difference}" if cell.paper is not None else ""
    return GridCell(cell.shown, cell.best, cell.best_overall, beside, below, cell.notes)


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


def tabulate(
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    caption: str = "",
    label: str = "",
    changed: Mapping[str, Sequence[str]] | None = None,
    design: Design = Design(),  # noqa: B008 a frozen value
) -> Table:
    """One line per method in order of appearance; every row a column selects is one seed's value.

    changed: for a method, how its training differs from the recipe; a note at each of its cells. design: which
    comparisons the values allow.
    """
    lines: dict[str, list[Cell | None]] = {method: [] for method in dict.fromkeys(row.method for row in rows)}
    for column in columns:
        selected: dict[str, list[Row]] = {method: [] for method in lines}
        for row in filter(column.select, rows):
            selected[row.method].append(row)
        for method, cell in _cells(column, selected, changed or {}, design).items():
            lines[method].append(cell)
    return Table(columns, lines, caption, label)


def _cells(
    column: Column, selected: Mapping[str, Sequence[Row]], changed: Mapping[str, Sequence[str]], design: Design
) -> dict[str, Cell | None]:
    """A column, from the rows of each method."""
    seeds = {method: _by_seed(column, own) for method, own in selected.items()}
    cells: dict[str, Cell | None] = {}
    for method, own in selected.items():
        if not own:
            cells[method] = None
            continue
        paper = paper_value_of(own[0])
        cells[method] = replace(
            aggregate([row.value for row in own], percent=column.percent),
            paper=paper,
            notes=tuple(_notes(own, paper, changed.get(method, ()), design)),
        )
    scaled = any(row.posthoc == SCALED for own in selected.values() for row in own)
    return judge(cells, seeds, higher_is_better=column.higher_is_better, design=design, scaled=scaled)


def judge(
    cells: Mapping[str, Cell | None],
    seeds: Mapping[str, Values],
    *,
    higher_is_better: bool | None,
    design: Design,
    scaled: bool,
) -> dict[str, Cell | None]:
    """A column's cells with what follows from seeing them together: the best, and who differs from the reference.

    seeds: the values behind the cells. scaled: whether they depend on T.
    """
    if scaled and any(seeds[method] for method in design.one_temperature if method in seeds):
        return dict(cells)
    ensembles = [*map(is_ensemble, cells)]
    shown = [float(cell.shown) if cell is not None else None for cell in cells.values()]
    marks = find_best(shown, ensembles, higher_is_better=higher_is_better)
    unpaired = [method for method, ensemble in zip(cells, ensembles, strict=True) if ensemble]
    found = compare_column(seeds, untested=design.untested, unpaired=unpaired)
    reference = cells.get(REFERENCE)
    judged: dict[str, Cell | None] = {}
    for (method, cell), mark in zip(cells.items(), marks, strict=True):
        if cell is not None:
            cell = replace(cell, best=mark.bold, best_overall=mark.underline, against=found.get(method))
            if cell.differs and reference is not None and higher_is_better is not None:
                cell = replace(cell, better=(cell.mean > reference.mean) == higher_is_better)
        judged[method] = cell
    return judged


def _by_seed(column: Column, rows: Sequence[Row]) -> Values:
    """Values by seed; one seed twice means that the column mixes what should be apart."""
    found = {row.seed: row.value for row in rows}
    if len(found) < len(rows) and None not in found:
        raise ValueError(
            f"column {column.title!r} must select one row per seed of {rows[0].method}, got {len(rows)} rows of "
            f"{len(found)} seeds: networks {sorted({row.network for row in rows})}, train sets "
            f"{sorted({row.train_set for row in rows})}, datasets {sorted({row.dataset for row in rows})}"
        )
    return found


def _notes(rows: Sequence[Row], paper: PaperValue | None, changed: Sequence[str], design: Design) -> Iterator[str]:
    """What a reader should know before comparing a cell."""
    method = rows[0].method
    if method in design.one_temperature and rows[0].posthoc == SCALED:
        yield ONE_TEMPERATURE
    elif method in design.untested:
        yield design.untested[method]
    if len(rows) == 1:
        yield "One seed: no spread is known."
    if any("(rebuilt)" in row.dataset for row in rows):
        yield "The set was rebuilt here; it is not the published one."
    known = _known(rows[0].method)
    if known is not None and not known.published:
        yield "The paper does not say which values and score it used for this method; docs/methods.md has our rule."
    if changed:
        yield f"Changed recipe: {'; '.join(changed)}."
    if paper is not None and paper.slip is not None:
        yield f"The paper's number is in doubt. {paper.slip}"


def is_ensemble(method: str) -> bool:
    """Whether a method trains several networks."""
    known = _known(method)
    return known is not None and known.train.get("members", 1) > 1


def _known(label: str) -> methods.Method | None:
    """The method that a label names; `mixup(alpha=1)` is mixup."""
    return methods.METHODS.get(label.partition("(")[0])


def ood_sets(rows: Sequence[Row]) -> list[str]:
    """The OOD sets as the rows name them, "(rebuilt)" and the like included."""
    return list(dict.fromkeys(row.dataset for row in rows if row.metric == "auroc"))


def shifted_sets(rows: Sequence[Row]) -> list[str]:
    """The shifted sets, families of corruptions as one."""
    return list(dict.fromkeys(row.dataset for row in rows if row.corruption == MEAN))


def main_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of a study's first table: accuracy, shift, OOD detection, calibration before and after T."""
    test = next((row.dataset for row in rows if row.metric == "accuracy" and not row.corruption), "")

    def detected(dataset: str) -> Callable[[Row], bool]:
        return lambda r: r.dataset == dataset and r.metric == "auroc" and r.score == paper_score(r.method)

    columns = [Column("accuracy", _on(test, "accuracy"))]
    columns += [Column(f"accuracy {name}", _on(name, "accuracy", corruption=MEAN)) for name in shifted_sets(rows)]
    columns += [Column(f"AUROC {name.removesuffix('/test')}", detected(name)) for name in ood_sets(rows)]
    for title, (metric, posthoc) in CALIBRATION.items():
        columns.append(Column(title, _on(test, metric, posthoc), higher_is_better=False))
    temperature = _on(test, "temperature", "temperature")
    return [*columns, Column("T", temperature, higher_is_better=None, percent=False)]


def shift_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of a study's second table: calibration on every shifted set, before and after T."""
    return [
        Column(f"{title} {name}", _on(name, metric, posthoc, MEAN), higher_is_better=False)
        for title, (metric, posthoc) in CALIBRATION.items()
        for name in shifted_sets(rows)
    ]


def _on(dataset: str, metric: str, posthoc: str = "none", corruption: str = "") -> Callable[[Row], bool]:
    return lambda r: (r.dataset, r.metric, r.posthoc, r.corruption) == (dataset, metric, posthoc, corruption)


def paper_score(method: str) -> str:
    """Return a method's OOD score, the paper's where it has one; Dempster-Shafer for methods we do not know.

    >>> paper_score("mixup"), paper_score("mixup(alpha=1)"), paper_score("something-new")
    ('entropy', 'entropy', 'dempster_shafer')
    """
    known = _known(method)
    return known.score if known is not None else "dempster_shafer"
