"""Read tables.toml, whose text looks like the paper's tables.

A head has one line per line of headings, "heading:width" between bars. Keys are lines of "network train_set metric :
dataset dataset[setting] ...", columns in this order; the network * is the one in the title of the section. A body has
one line per line of the table, "label | cells"; * after a number means that the paper prints it bold, _ underlined; -
is a dash and . an empty cell; --- is a rule, and == TITLE begins a section. Numbers are kept as printed, misprints
included.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

_NETWORKS = {"WRN28-10": "wrn28-10", "WRN": "wrn28-10", "R50": "resnet50"}
_METRICS = {"Accuracy": "accuracy", "AdaECE": "adaptive_ece", "ECE": "ece"}


class At(NamedTuple):
    """A cell: the table's number, the line as printed, and the column as "network train_set dataset"."""

    table: str
    line: str
    column: str


class Doubt(NamedTuple):
    """A sentence that says why the numbers of some cells cannot all be right."""

    sentence: str
    cells: tuple[At, ...]


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
        """Return the name of the column; unique in its table."""
        return f"{self.network} {self.train_set} {self.dataset}" + (f"[{self.setting}]" if self.setting else "")


@dataclass(frozen=True)
class PaperCell:
    """A number as printed, with the paper's own marks; "-" or "" where there is none."""

    text: str
    bold: bool = False
    underline: bool = False

    @property
    def number(self) -> float | None:
        """
        >>> PaperCell("78,56").number
        78.56
        """
        return float(self.text.replace(",", ".")) if self.text not in ("-", "") else None


@dataclass(frozen=True)
class PaperLine:
    """labels: left of the numbers, as printed; two in the table of hyper-parameters."""

    labels: tuple[str, ...]
    cells: tuple[PaperCell, ...]

    @property
    def name(self) -> str:
        return "; ".join(self.labels)


@dataclass(frozen=True)
class TableSection:
    """Lines whose numbers are compared with each other, in groups between which the paper draws a rule."""

    title: str
    keys: tuple[Key, ...]
    groups: tuple[tuple[PaperLine, ...], ...]

    @property
    def lines(self) -> list[PaperLine]:
        return [line for group in self.groups for line in group]


@dataclass(frozen=True)
class PaperTable:
    """One tabular of the paper.

    number: the paper's; "10 left" where two stand side by side. caption: ours. head: the headings, as the file has
    them. posthoc: the posthoc map of the predictions. grid: the method whose values a cross-validation varies. marked:
    whether the paper marks the best numbers of this table.
    """

    number: str
    caption: str
    head: str
    sections: tuple[TableSection, ...]
    posthoc: str = "none"
    grid: str = ""
    marked: bool = True

    def cells(self) -> Iterator[tuple[PaperLine, Key, PaperCell]]:
        """Yield every cell, line by line."""
        for section in self.sections:
            for line in section.lines:
                for key, cell in zip(section.keys, line.cells, strict=True):
                    yield line, key, cell


def read_tables() -> tuple[dict[str, PaperTable], list[Doubt]]:
    """Read all tables, by number, and the doubts about their numbers."""
    text = (resources.files("regmixup.paper") / "tables.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    tables = {}
    for entry in content["tables"]:
        title = entry["caption"].partition(" ")[0]
        shared = content["shared"].get(entry.pop("like", ""), {})
        filled = {name: part.format(title=title, metric=_METRICS.get(title)) for name, part in shared.items()}
        tables[entry["number"]] = _table(**filled | entry)
    doubts = [
        Doubt(entry["sentence"], tuple(At(*cell.split(" | ")) for cell in entry["cells"]))
        for entry in content["doubts"]
    ]
    return tables, doubts


def _table(*, keys: str, body: str, **fields: Any) -> PaperTable:
    sections = []
    for title, lines in _split(_lines(body), "=="):
        groups = tuple(tuple(map(_line, group)) for _, group in _split(lines, "---"))
        sections.append(TableSection(title, _keys(keys, _NETWORKS.get(title.split(" ")[-1], "")), groups))
    return PaperTable(sections=tuple(sections), **fields)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _split(lines: list[str], separator: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines between separators, each with the title beside the separator before."""
    title, between = "", list[str]()
    for line in lines:
        if line.startswith(separator):
            if between:
                yield title, between
            title, between = line.removeprefix(separator).strip(), []
        else:
            between.append(line)
    yield title, between


def _line(text: str) -> PaperLine:
    labels, _, cells = text.partition("|")
    return PaperLine(tuple(label.strip() for label in labels.split(";")), tuple(map(_cell, cells.split())))


def _cell(text: str) -> PaperCell:
    number = text.rstrip("*_")
    return PaperCell("" if number == "." else number, "*" in text, "_" in text)


def _keys(text: str, section_network: str) -> tuple[Key, ...]:
    keys = []
    for line in _lines(text):
        columns, _, datasets = line.partition(" : ")
        network, train_set, metric = columns.split()
        for dataset, setting in re.findall(r"([^\s\[]+)(?:\[(.*?)\])?", datasets):
            keys.append(Key(section_network if network == "*" else network, train_set, metric, dataset, setting))
    return tuple(keys)
