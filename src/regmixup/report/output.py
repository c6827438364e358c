"""Write a report: the tables of `regmixup.report.tables` and the page, as four files; and for the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from regmixup.report.page import render
from regmixup.report.results import Results
from regmixup.report.tables import selection_table, study_tables
from regmixup.report.writers import escape_markdown, markdown_table, print_table, to_csv, to_latex, to_markdown
from regmixup.storage import write_text


def print_report(results: Results, console: Console) -> None:
    """Print the main table of every setting."""
    for tables in study_tables(results):
        print_table(tables[0], console)


def write_report(results: Results) -> list[Path]:
    """Write report.html, report.md, report.tex and report.csv into the results' folder."""
    if not any(setting.rows for setting in results.settings):
        raise ValueError(f"{results.folder} has no row of a finished run: there is nothing to report yet")
    tables = study_tables(results)
    written = [table for part in tables for table in part if table.columns]
    parts = [f"# {escape_markdown(results.title)}\n", *map(to_markdown, written)]
    if results.selected:
        selected = selection_table(results.selected)
        lines = [[*map(escape_markdown, line)] for line in selected.lines]
        parts.append(f"{selected.caption}.\n\n{markdown_table(selected.heads, lines)}")
    texts = {
        "report.html": render(results, tables),
        "report.md": "\n".join(parts),
        "report.tex": "\n".join(map(to_latex, written)),
        "report.csv": to_csv([setting.name for setting in results.settings], tables),
    }
    for name, text in texts.items():
        write_text(results.folder / name, text)
    return [results.folder / name for name in texts]
