"""Write a report: the tables of `regmixup.report.tables` and the page, as four files; and for the terminal."""

from __future__ import annotations

from pathlib import Path

from regmixup.report.page import render
from regmixup.report.results import Results
from regmixup.report.tables import SelectionTable, Table, main_tables, shift_tables
from regmixup.report.writers import TerminalTable, escape_markdown, to_csv, to_latex, to_markdown
from regmixup.storage import write_text


def terminal_tables(results: Results) -> list[TerminalTable]:
    """Return the main tables for the terminal."""
    return [TerminalTable(table) for table in main_tables(results)]


def write_report(results: Results) -> list[Path]:
    """Write report.html, report.md, report.tex and report.csv into the results' folder."""
    if not any(setting.rows for setting in results.settings):
        raise ValueError(f"{results.folder} has no row of a finished run: there is nothing to report yet")
    tables, shifted = main_tables(results), shift_tables(results)
    written: list[Table | SelectionTable] = []
    for pair in zip(tables, shifted, strict=True):
        written += [table for table in pair if table.columns]
    if results.selected:
        written.append(SelectionTable(results.selected))
    texts = {
        "report.html": render(results, tables, shifted),
        "report.md": f"# {escape_markdown(results.title)}\n\n" + "\n".join(map(to_markdown, written)),
        "report.tex": "\n".join(map(to_latex, written)),
        "report.csv": to_csv([setting.name for setting in results.settings], tables, shifted),
    }
    for name, text in texts.items():
        write_text(results.folder / name, text)
    return [results.folder / name for name in texts]
