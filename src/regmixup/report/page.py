"""One self-contained HTML page: tables, figures that its own script draws, and where the numbers came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from string import Template

from regmixup.report.page_data import page_data
from regmixup.report.results import Results
from regmixup.report.sections import sections, web_file
from regmixup.report.tables import Table, paper_score

SCRIPTS = ("state", "text", "controls", "panel", "figure", "figures", "tables", "explorer")
"""In the order in which they build upon each other."""


def render(results: Results, tables: Sequence[Table], shifted: Sequence[Table]) -> str:
    """The whole page. tables: the main table of every setting. shifted: that of its calibration under shift."""
    data = page_data(results)
    found = list(sections(results, tables, shifted, data))
    return Template(web_file("page.html")).substitute(
        title=escape(results.title),
        lead=escape(_lead(results)),
        css=web_file("page.css"),
        contents="\n".join(f'<li><a href="#{one.name}">{one.title}</a></li>' for one in found),
        sections="\n".join(one.html() for one in found),
        # "<" could end the element that holds the data.
        data=json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"),
        script='"use strict";\n' + "\n".join(web_file(f"{name}.js") for name in SCRIPTS),
    )


def _lead(results: Results) -> str:
    labels = list(dict.fromkeys(run.label for run in results.runs))
    seeds = max(setting.seeds for setting in results.settings)
    titles = ", ".join(dict.fromkeys(setting.title for setting in results.settings))
    parts = [f"{len(labels)} method{'s' * (len(labels) != 1)}, {seeds} seed{'s' * (seeds != 1)} each: {titles}."]
    measured = {row.metric for row in results.rows}
    if "auroc" in measured:
        scores = {label: paper_score(label).replace("_", " ") for label in labels}
        others = ", ".join(f"{label} by {score}" for label, score in scores.items() if score != "dempster shafer")
        exception = f", but {others}" if others else ""
        parts.append(f"AUROC in the first table is by the score of each method: Dempster-Shafer{exception}.")
    if "temperature" in measured:
        unscaled = "; OOD scores use unscaled logits" if "auroc" in measured else ""
        parts.append(f"T is fitted on validation data by ECE{unscaled}.")
    return " ".join(parts)
