"""The paper's tables as values: read from tables.toml, whose text looks like them.

A head has one line per line of headings, "heading:width" between bars. Keys are lines of "network train_set metric :
dataset dataset[setting] ...", columns in this order; the network * is the one in the title of the section. A body has
one line per row, "label | cells"; * after a number means that the paper prints it bold, _ underlined; - is a dash and .
an empty cell; --- is a rule, and == TITLE begins a section. Numbers are kept as printed, misprints included.
"""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from regmixup.paper.slips import At, slips_by_cell
from regmixup.report.significance import Marks, find_best
from regmixup.report.writers import Block, Heading, LayoutCell, Line, TableLayout
from regmixup.types import higher_is_better

_NETWORKS = {"WRN28-10": "wrn28-10", "WRN": "wrn28-10", "R50": "resnet50"}
_METRICS = {"Accuracy": "accuracy", "AdaECE": "adaptive_ece", "ECE": "ece"}


@dataclass(frozen=True)
class Key:
    """The quantity of a column, by the names of this package.

    train_set: without "/train". setting: what a cross-validation varies by column, such as "eta=0.1".
    """

    network: str
    train_set: str
    metric: str
    dataset: str
    setting: str = ""

    @property
    def name(self) -> str:
        """Return the name of the column in slips; unique in its table."""
        return f"{self.network} {self.train_set} {self.dataset}" + (f"[{self.setting}]" if self.setting else "")


@dataclass(frozen=True)
class PaperCell:
    """A number as printed, with the paper's own marks; "-" or "" where there is none."""

    text: str
    marks: Marks

    @property
    def number(self) -> float | None:
        """
        >>> PaperCell("78,56", Marks()).number
        78.56
        """
        return float(self.text.replace(",", ".")) if self.text not in ("-", "") else None


@dataclass(frozen=True)
class PaperRow:
    """labels: left of the numbers, as printed; two in the table of hyper-parameters."""

    labels: tuple[str, ...]
    cells: tuple[PaperCell, ...]

    @property
    def name(self) -> str:
        return "; ".join(self.labels)

    @property
    def is_ensemble(self) -> bool:
        return self.labels[0].startswith("DE")


@dataclass(frozen=True)
class TableSection:
    """Rows whose numbers are compared with each other, in groups between which the paper draws a rule."""

    title: str
    keys: tuple[Key, ...]
    groups: tuple[tuple[PaperRow, ...], ...]

    @property
    def rows(self) -> list[PaperRow]:
        return [row for group in self.groups for row in group]


@dataclass(frozen=True)
class PaperTable:
    """One tabular of the paper.

    number: the paper's; "10 left" where two stand side by side. caption: ours. head: the lines of headings.
    posthoc: the posthoc map of the predictions. marked: whether the paper marks the best numbers of this table.
    """

    number: str
    caption: str
    head: tuple[tuple[Heading, ...], ...]
    sections: tuple[TableSection, ...]
    posthoc: str = "none"
    marked: bool = True

    def cells(self) -> Iterator[tuple[PaperRow, Key, PaperCell]]:
        """Yield every cell, row by row."""
        for section in self.sections:
            for row in section.rows:
                for key, cell in zip(section.keys, row.cells, strict=True):
                    yield row, key, cell

    def best(self) -> dict[tuple[str, str], Marks]:
        """Return the marks that the numbers ask for, by names of row and column; none where the paper marks nothing."""
        found = {}
        for section in self.sections if self.marked else ():
            ensembles = [row.is_ensemble for row in section.rows]
            for index, key in enumerate(section.keys):
                values = [row.cells[index].number for row in section.rows]
                marks = find_best(values, ensembles, higher_is_better=higher_is_better(key.metric))
                found.update({(row.name, key.name): mark for row, mark in zip(section.rows, marks, strict=True)})
        return found

    def layout(self) -> TableLayout:
        """Lay the table out as in the paper, with the marks that its numbers ask for; slips become notes."""
        best, slips = self.best(), slips_by_cell("number", "mark")

        def drawn(row: PaperRow, key: Key, cell: PaperCell) -> LayoutCell:
            notes = tuple(slips.get(At(self.number, row.name, key.name), ()))
            return LayoutCell(cell.text, *best.get((row.name, key.name), Marks()), notes=notes)

        def lines(section: TableSection, group: tuple[PaperRow, ...]) -> Iterator[Line]:
            above = ""
            for row in group:
                shown = ("", *row.labels[1:]) if row.labels[0] == above else row.labels
                above = row.labels[0]
                pairs = zip(section.keys, row.cells, strict=True)
                yield Line(shown, tuple(drawn(row, key, cell) for key, cell in pairs))

        blocks = [
            Block(tuple(lines(section, group)), section.title if group is section.groups[0] else "")
            for section in self.sections
            for group in section.groups
        ]
        label = f"tab:paper-{self.number.replace(' ', '-')}"
        return TableLayout(self.head, tuple(blocks), caption=self.caption, label=label)

    def grid(self) -> TableLayout:
        """Return `layout()`, under the name that it had before; version 0.3 removes it."""
        warnings.warn("PaperTable.grid() is now layout(); version 0.3 removes it", DeprecationWarning, stacklevel=2)
        return self.layout()


def read_tables() -> dict[str, PaperTable]:
    """Read all tables, by number."""
    text = (resources.files("regmixup.paper") / "tables.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)
    tables = {}
    for one in found["tables"]:
        title = one["caption"].partition(" ")[0]
        shared = found["shared"].get(one.pop("like", ""), {})
        filled = {name: part.format(title=title, metric=_METRICS.get(title)) for name, part in shared.items()}
        tables[one["number"]] = read_table(**filled | one)
    return tables


def read_table(
    *, number: str, caption: str, head: str, keys: str, body: str, posthoc: str = "none", marked: bool = True
) -> PaperTable:
    """Read a table from its parts, written as above."""
    headings = tuple(tuple(map(_heading, line.split("|"))) for line in _lines(head))
    sections = []
    for title, lines in _split(_lines(body), "=="):
        groups = tuple(tuple(map(_row, group)) for _, group in _split(lines, "---"))
        sections.append(TableSection(title, _keys(keys, _NETWORKS.get(title.split(" ")[-1], "")), groups))
    return PaperTable(number, caption, headings, tuple(sections), posthoc, marked)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _split(lines: list[str], separator: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines between separators, each with the title beside the separator before."""
    title, found = "", list[str]()
    for line in lines:
        if line.startswith(separator):
            if found:
                yield title, found
            title, found = line.removeprefix(separator).strip(), []
        else:
            found.append(line)
    yield title, found


def _heading(text: str) -> Heading:
    title, _, width = text.strip().partition(":")
    return Heading(title, int(width or 1))


def _row(line: str) -> PaperRow:
    labels, _, cells = line.partition("|")
    return PaperRow(tuple(label.strip() for label in labels.split(";")), tuple(map(_cell, cells.split())))


def _cell(text: str) -> PaperCell:
    number = text.rstrip("*_")
    return PaperCell("" if number == "." else number, Marks("*" in text, "_" in text))


def _keys(text: str, network: str) -> tuple[Key, ...]:
    found = []
    for line in _lines(text):
        columns, _, datasets = line.partition(" : ")
        own, train_set, metric = columns.split()
        for dataset, setting in re.findall(r"([^\s\[]+)(?:\[(.*?)\])?", datasets):
            found.append(Key(network if own == "*" else own, train_set, metric, dataset, setting))
    return tuple(found)
