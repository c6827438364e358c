"""Write a report: the tables of `regmixup.report.tables` and the page, as four files; and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from regmixup.names import printable
from regmixup.report.leaderboard import mean_ranks, rank_caption
from regmixup.report.page import ABOUT, study_page
from regmixup.report.results import Results, load_results
from regmixup.report.tables import SELECTION, selection_table, study_tables
from regmixup.report.writers import escape_markdown, markdown_table, print_table, to_csv, to_latex, to_markdown
from regmixup.storage import write_text


def print_report(results: Results, written: Sequence[Path], console: Console) -> None:
    """Print the main table of every setting, what was selected, and the files of `write_report`."""
    for tables in study_tables(results):
        print_table(tables[0], console)
    if results.selected:
        console.print(SELECTION, highlight=False)
        for cells in selection_table(results.selected):
            console.print("  ".join(map(printable, cells)), markup=False, highlight=False, soft_wrap=True)
    for setting in results.settings if results.ranked else ():
        console.print(f"{setting.title}. {rank_caption(setting)}", highlight=False)
        for label, rank in mean_ranks(setting).items():
            console.print(f"  {rank:5.2f}  {printable(label)}", markup=False, highlight=False)
    for path in written:
        console.print(str(path), markup=False, highlight=False, soft_wrap=True)


def write_report(results: Results | str | Path) -> list[Path]:
    """Write report.html, report.md, report.tex and report.csv into the folder of results.

    results: as `rm.report.load` returns them, or the folder of a study.
    """
    if not isinstance(results, Results):
        results = load_results(results)
    if not any(setting.rows for setting in results.settings):
        raise ValueError(f"{results.folder} has no row of a finished run: there is nothing to report yet")
    tables = study_tables(results)
    written = [table for part in tables for table in part if table.columns]
    parts = [f"# {escape_markdown(results.title)}\n", *map(to_markdown, written)]
    if results.selected:
        heads, *lines = ([*map(escape_markdown, line)] for line in selection_table(results.selected))
        parts.append(f"{SELECTION}.\n\n{markdown_table(heads, lines)}")
    if results.about.strip():
        parts.append("\n\n".join([f"## {ABOUT}", *map(escape_markdown, results.about.split("\n\n"))]) + "\n")
    texts = {
        "report.html": study_page(results, tables),
        "report.md": "\n".join(parts),
        "report.tex": "\n".join(map(to_latex, written)),
        "report.csv": to_csv([setting.name for setting in results.settings], tables),
    }
    for name, text in texts.items():
        write_text(results.folder / name, text)
    return [results.folder / name for name in texts]
