"""From stored results to what people read: a page, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regmixup.report.grid import Drawable
from regmixup.report.latex import to_latex
from regmixup.report.markdown import to_markdown
from regmixup.report.page import render
from regmixup.report.results import Results, Setting
from regmixup.report.selected import Selected
from regmixup.report.tables import Table, main_columns, tabulate
from regmixup.report.terminal import TerminalTable
from regmixup.storage import write_text


def main_tables(results: Results) -> list[Table]:
    """The first table of every setting: every method by accuracy, shift, detection and calibration."""
    return [_main_table(results, setting) for setting in results.settings]


def _main_table(results: Results, setting: Setting) -> Table:
    changed = {run.label: run.changes for run in setting.runs}
    caption = f"{results.title}: {setting.title}" if len(results.settings) > 1 else results.title
    label = f"tab:{setting.name.replace(' ', '-')}"
    table = tabulate(setting.rows, main_columns(setting.rows), caption=caption, label=label, changed=changed)
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
    tables = main_tables(results)
    written: list[Drawable] = [*tables, *([Selected(results.selected)] if results.selected else [])]
    texts = {
        "report.html": render(results, tables),
        "report.md": f"# {results.title}\n\n" + "\n".join(map(to_markdown, written)),
        "report.tex": "\n".join(map(to_latex, written)),
        "report.csv": to_csv(results, tables),
    }
    for name, text in texts.items():
        write_text(results.folder / name, text)
    return [results.folder / name for name in texts]


def to_csv(results: Results, tables: Sequence[Table]) -> str:
    """A line per cell, as fractions: what the tables print, and what they only mark."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("setting", "method", "quantity", "mean", "std", "n", "paper", "paper_table", "p", "test", "best", "notes")
    writer.writerow(names)
    for setting, table in zip(results.settings, tables, strict=True):
        for method, cells in table.lines.items():
            for column, cell in zip(table.columns, cells, strict=True):
                if cell is None:
                    continue
                best = " ".join(name for name, own in (("single", cell.best), ("overall", cell.best_overall)) if own)
                paper = (cell.paper.value, cell.paper.table) if cell.paper is not None else ("", "")
                against = (cell.against.p, cell.against.test) if cell.against is not None else ("", "")
                std = cell.std if cell.n > 1 else ""
                line = (setting.name, method, column.title, cell.mean, std, cell.n, *paper, *against, best)
                writer.writerow([*line, " ".join(cell.notes)])
    return text.getvalue()
