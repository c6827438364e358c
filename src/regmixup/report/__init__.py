"""Reports: rows -> tables, figures and one self-contained page. Reads stored results only, never a model.

results = rm.report.load("runs/study-digits")
rm.report.build(results)                          # report.html, report.md, report.tex, report.csv
rm.report.write_page("page.html", predictions)    # of any model's predictions, or of two side by side

The way of a number: results.py reads rows and runs from disk; aggregation.py takes the mean over seeds and compares it;
tables.py makes the main table and the others of it, leaderboard.py the page's first; writers.py writes these as
Markdown, LaTeX, CSV and for the terminal, page.py and templates/ as one HTML page, whose figures web/ draws from
script_data.py. units.py says in which unit each metric is shown. The page of one or two models is made by
evaluation_page.py and, of one, answers.py.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regmixup.evaluation.evaluate import ModelPredictions
    from regmixup.report.evaluation_page import write_page
    from regmixup.report.output import write_report as build
    from regmixup.report.results import load_results as load

__all__ = ["ModelPredictions", "build", "load", "write_page"]

_PLACES = {
    "ModelPredictions": "evaluation.evaluate.ModelPredictions",
    "build": "report.output.write_report",
    "load": "report.results.load_results",
    "write_page": "report.evaluation_page.write_page",
}


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PLACES[name].rpartition(".")
    return getattr(import_module(f"regmixup.{module}"), attribute)
