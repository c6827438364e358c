"""Reports: rows -> tables, figures and one self-contained page. Reads stored results only, never a model.

results = rm.report.load("runs/study-digits")
rm.report.build(results)                          # report.html, report.md, report.tex, report.csv
rm.report.write_page("page.html", predictions)    # of any model's predictions, or of two side by side

The way of a number: results.py reads rows and runs from disk; aggregation.py takes the mean over seeds and compares it;
tables.py makes the main table and the others of it, leaderboard.py the page's first; writers.py writes these as
Markdown, LaTeX, CSV and for the terminal, page.py and templates/ as one HTML page, whose figures web/ draws from
script_data.py. The page of one or two models is made by evaluation_page.py and, of one, answers.py.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regmixup.evaluation.evaluate import ModelPredictions
    from regmixup.report.evaluation_page import write_page
    from regmixup.report.results import Results

__all__ = ["ModelPredictions", "build", "load", "write_page"]

_PLACES = {"ModelPredictions": "regmixup.evaluation.evaluate", "write_page": "regmixup.report.evaluation_page"}


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def load(folder: str | Path, out: str | Path | None = None) -> Results:
    """Read the folder of a study, for a report there or in the folder `out`."""
    from regmixup.report.results import Results

    return Results.open(folder, out)


def build(results: Results | str | Path) -> list[Path]:
    """Write report.html, report.md, report.tex and report.csv. results: as read, or the folder of a study."""
    from regmixup.report.output import write_report
    from regmixup.report.results import Results

    return write_report(results if isinstance(results, Results) else Results.open(results))
