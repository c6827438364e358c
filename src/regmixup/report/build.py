"""From a study's folder to what people read."""

from __future__ import annotations

from pathlib import Path

from regmixup.report.page import write_page
from regmixup.report.results import Results
from regmixup.report.tables import main_columns, tabulate
from regmixup.report.terminal import TerminalTable


def main_table(results: Results) -> TerminalTable:
    """A study's first table, for the terminal."""
    table = tabulate(results.rows, main_columns(results.rows))
    seeds = len(results.study["seeds"])
    validation = results.study["evaluate"]["validation"]
    caption = f"percent, mean ± std over n = {seeds} seeds, best in bold; T fitted on {validation}"
    return TerminalTable(table, results.study["title"], caption)


def report(folder: str | Path) -> tuple[TerminalTable, Path]:
    """The terminal table, and the path of the page just written."""
    results = Results.open(folder)
    return main_table(results), write_page(results)
