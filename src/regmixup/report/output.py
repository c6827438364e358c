"""From stored results to what people read: a page, Markdown, LaTeX, CSV and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from regmixup.report.layout import Drawable
from regmixup.report.page import render
from regmixup.report.results import Results, Setting
from regmixup.report.tables import Column, SelectionTable, Table, main_columns, shift_columns, tabulate
from regmixup.report.writers import TerminalTable, escape_markdown, to_csv, to_latex, to_markdown
from regmixup.storage import write_text


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
    titles = [results.title, *([setting.title] if len(results.settings) > 1 else []), *([what] if what else [])]
    label = "-".join(["tab:" + setting.name, *([what] if what else [])]).replace(" ", "-")
    table = tabulate(setting.aggregation, columns, caption=": ".join(titles), label=label, changed=changed)
    kept = [index for index in range(len(table.columns)) if any(cells[index] for cells in table.lines.values())]
    lines = {name: [cells[index] for index in kept] for name, cells in table.lines.items()}
    return replace(table, columns=[table.columns[index] for index in kept], lines=lines)


def terminal_tables(results: Results) -> list[TerminalTable]:
    """Return the main tables for the terminal."""
    caption = "percent, mean ± std over seeds, best in bold"
    return [TerminalTable(table, table.caption, caption) for table in main_tables(results)]


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
