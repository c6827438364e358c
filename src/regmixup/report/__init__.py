"""Reports: rows -> tables, figures and one self-contained page. Reads stored results only, never a model.

results = rm.report.load("runs/study-digits")     # or rm.report.collect(run_folders, out)
rm.report.build(results)                          # report.html, report.md, report.tex, report.csv
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regmixup.report.results import Results

__all__ = ["build", "collect", "load"]


def load(folder: str | Path, out: str | Path | None = None) -> Results:
    """Read the folder of a study, for a report there or in the folder `out`."""
    from regmixup.report.results import Results

    return Results.open(folder, out)


def collect(folders: Iterable[str | Path], out: str | Path) -> Results:
    """Read run folders that a study has evaluated, for a report in the folder `out`."""
    from regmixup.report.results import Results

    return Results.of_runs(folders, out)


def build(results: Results | str | Path) -> list[Path]:
    """Write report.html, report.md, report.tex and report.csv. results: as read, or the folder of a study."""
    from regmixup.report.output import write_report
    from regmixup.report.results import Results

    return write_report(results if isinstance(results, Results) else Results.open(results))
