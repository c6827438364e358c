"""From stored results to what people read: a page, Markdown, LaTeX, CSV and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from regmixup.names import counted, printable
from regmixup.report.aggregation import Cell
from regmixup.report.page import render
from regmixup.report.results import Results, Setting
from regmixup.report.tables import Column, SelectionTable, Table, main_columns, shift_columns, tabulate
from regmixup.report.writers import Drawable, escape_markdown, to_latex, to_markdown
from regmixup.storage import csv_lines, write_text


def main_tables(results: Results) -> list[Table]:
    """Return the first table of every setting: every method by accuracy, shift, detection and calibration."""
    return [_table(results, setting, main_columns(setting.aggregation)) for setting in results.settings]


def shift_tables(results: Results) -> list[Table]:
    """Return the second table of every setting, calibration under shift; without columns where nothing is shifted."""
    return [
        _table(results, setting, shift_columns(setting.aggregation), "calibration under shift")
        for setting in results.settings
    ]


def _table(results: Results, setting: Setting, columns: Sequence[Column], what: str = "") -> Table:
    """Make a table of the columns that have a value. what: distinguishes it from the setting's first table."""
    changed = {run.label: run.changes for run in setting.runs}
    caption = [results.title, *filter(None, [setting.title if len(results.settings) > 1 else "", what])]
    label = f"tab:{setting.name} {what}".strip().replace(" ", "-")
    found = setting.aggregation
    columns = [one for one in columns if any(found.rows(one.quantity, method) for method in found.labels)]
    return tabulate(found, columns, caption=": ".join(caption), label=label, changed=changed)


def terminal_tables(results: Results) -> list[TerminalTable]:
    """Return the main tables for the terminal."""
    return [TerminalTable(table, table.caption, _averaged(table)) for table in main_tables(results)]


def _averaged(table: Table) -> str:
    """Say what a number of the table is, and over how many seeds: methods may have more or fewer."""
    counts = sorted({cell.n for line in table.lines.values() for cell in line if cell is not None})
    fewest = f"{counts[0]} to " if len(counts) > 1 else ""
    seeds = f"{fewest}{counted(counts[-1], 'seed')}" if counts else "no seeds"
    return f"percent, mean ± std over {seeds}, best in bold"


def write_report(results: Results) -> list[Path]:
    """Write report.html, report.md, report.tex and report.csv into the results' folder."""
    if not any(setting.rows for setting in results.settings):
        raise ValueError(f"{results.folder} has no row of a finished run: there is nothing to report yet")
    tables, shifted = main_tables(results), shift_tables(results)
    written: list[Drawable] = [table for both in zip(tables, shifted, strict=True) for table in both if table.columns]
    written += [SelectionTable(results.selected)] if results.selected else []
    texts = {
        "report.html": render(results, tables, shifted),
        "report.md": f"# {escape_markdown(results.title)}\n\n" + "\n".join(map(to_markdown, written)),
        "report.tex": "\n".join(map(to_latex, written)),
        "report.csv": to_csv([setting.name for setting in results.settings], tables, shifted),
    }
    for name, text in texts.items():
        write_text(results.folder / name, text)
    return [results.folder / name for name in texts]


def to_csv(settings: Sequence[str], *tables: Sequence[Table]) -> str:
    """Write a line per cell, as fractions: what the tables print, and what they only mark.

    settings: their names. tables: lists of one table per setting.
    """
    names = ("setting", "method", "quantity", "mean", "std", "n", "paper", "paper_table", "p", "test", "best", "notes")
    lines: list[Sequence[object]] = [names]
    for setting, table in [place for part in tables for place in zip(settings, part, strict=True)]:
        for method, cells in table.lines.items():
            for column, cell in zip(table.columns, cells, strict=True):
                if cell is None:
                    continue
                best = " ".join(name for name, own in (("single", cell.best), ("overall", cell.best_overall)) if own)
                paper = (cell.paper.value, cell.paper.table) if cell.paper is not None else ("", "")
                against = (cell.against.p, cell.against.test) if cell.against is not None else ("", "")
                std = cell.std if cell.n > 1 else ""
                line = (setting, method, column.title, cell.mean, std, cell.n, *paper, *against, best)
                lines.append([printable(w) if isinstance(w, str) else w for w in (*line, " ".join(cell.notes))])
    return csv_lines(lines)


@dataclass(frozen=True)
class TerminalTable:
    """A table for rich to print: one line per quantity, one column per method; best in bold.

    Methods that do not fit the terminal follow in further blocks, so that no number is cut.
    """

    table: Table
    title: str
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        blocks, rest = [], list(self.table.lines)
        while rest:
            count = self._fitting(rest, console, options)
            blocks.append(self._block(rest[:count]))
            rest = rest[count:]
        if blocks:
            blocks[0].title = Text(printable(self.title), "bold")  # Text, not str: square brackets are not markup
            blocks[-1].caption = Text(printable(self.caption)) if self.caption else None
        yield from blocks

    def _fitting(self, methods: list[str], console: Console, options: ConsoleOptions) -> int:
        """Return how many of the methods fit side by side; at least one, with the names of quantities folded."""
        unbounded = options.update(width=10_000)
        fits = (
            count
            for count in range(len(methods), 1, -1)
            if console.measure(self._block(methods[:count]), options=unbounded).maximum <= options.max_width
        )
        return next(fits, 1)

    def _block(self, methods: list[str]) -> RichTable:
        drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        drawn.add_column("", overflow="fold")
        for method in methods:
            drawn.add_column(Text(printable(method)), justify="right", no_wrap=True)
        for index, column in enumerate(self.table.columns):
            cells = (self.table.lines[method][index] for method in methods)
            drawn.add_row(Text(printable(column.heading)), *map(_terminal_cell, cells))
        return drawn


def _terminal_cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text("-")
    text = Text(cell.shown, style="bold" if cell.best else "")
    return text.append(f" {cell.spread}", style="dim not bold")
