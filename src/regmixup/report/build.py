"""From stored results to what people read: a page, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regmixup.names import printable
from regmixup.report.grid import Drawable
from regmixup.report.latex import to_latex
from regmixup.report.markdown import escape, to_markdown
from regmixup.report.page import render
from regmixup.report.results import Results, Setting
from regmixup.report.selected import Selected
from regmixup.report.tables import Column, Table, main_columns, shift_columns, tabulate
from regmixup.report.terminal import TerminalTable
from regmixup.storage import csv_text, write_text


def main_tables(results: Results) -> list[Table]:
    """The first table of every setting: every method by accuracy, shift, detection and calibration."""
    return [_table(results, setting, main_columns(setting.rows)) for setting in results.settings]


def shift_tables(results: Results) -> list[Table]:
    """The second table of every setting, of calibration under shift; without columns where nothing is shifted."""
    return [
        _table(results, setting, shift_columns(setting.rows), "calibration under shift") for setting in results.settings
    ]


def _table(results: Results, setting: Setting, columns: Sequence[Column], what: str = "") -> Table:
    """Of the columns that somebody has a value for. what: tells it from the setting's first table."""
    changed = {run.label: run.changes for run in setting.runs}
    titles = [results.title, *([setting.title] if len(results.settings) > 1 else []), *([what] if what else [])]
    label = "-".join(["tab:" + setting.name, *([what] if what else [])]).replace(" ", "-")
    table = tabulate(
        setting.rows, columns, caption=": ".join(titles), label=label, changed=changed, design=setting.design
    )
    kept = [index for index in range(len(table.columns)) if any(cells[index] for cells in table.lines.values())]
    lines = {name: [cells[index] for index in kept] for name, cells in table.lines.items()}
    return replace(table, columns=[table.columns[index] for index in kept], lines=lines)


def terminal_tables(results: Results) -> list[TerminalTable]:
    """The main tables, for the terminal."""
    caption = "percent, mean ± std over seeds, best in bold"
    return [TerminalTable(table, table.caption, caption) for table in main_tables(results)]


def report(results: Results) -> list[Path]:
    """Write report.html, report.md, report.tex and report.csv into the results' folder."""
    if not any(setting.rows for setting in results.settings):
        raise ValueError(f"{results.folder} has no row of a finished run: there is nothing to report yet")
    tables, shifted = main_tables(results), shift_tables(results)
    written: list[Drawable] = [table for both in zip(tables, shifted, strict=True) for table in both if table.columns]
    written += [Selected(results.selected)] if results.selected else []
    texts = {
        "report.html": render(results, tables, shifted),
        "report.md": f"# {escape(results.title)}\n\n" + "\n".join(map(to_markdown, written)),
        "report.tex": "\n".join(map(to_latex, written)),
        "report.csv": to_csv(results, tables, shifted),
    }
    for name, text in texts.items():
        write_text(results.folder / name, text)
    return [results.folder / name for name in texts]


def to_csv(results: Results, *tables: Sequence[Table]) -> str:
    """A line per cell, as fractions: what the tables print, and what they only mark."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("setting", "method", "quantity", "mean", "std", "n", "paper", "paper_table", "p", "test", "best", "notes")
    writer.writerow(names)
    for setting, table in [place for part in tables for place in zip(results.settings, part, strict=True)]:
        for method, cells in table.lines.items():
            for column, cell in zip(table.columns, cells, strict=True):
                if cell is None:
                    continue
                best = " ".join(name for name, own in (("single", cell.best), ("overall", cell.best_overall)) if own)
                paper = (cell.paper.value, cell.paper.table) if cell.paper is not None else ("", "")
                against = (cell.against.p, cell.against.test) if cell.against is not None else ("", "")
                std = cell.std if cell.n > 1 else ""
                line = (setting.name, method, column.title, cell.mean, std, cell.n, *paper, *against, best)
                words = [*line, " ".join(cell.notes)]
                writer.writerow([csv_text(printable(w)) if isinstance(w, str) else w for w in words])
    return text.getvalue()
