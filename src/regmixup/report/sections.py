"""The sections of the page: one idea each. What does not depend on the results is written in web/sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any

from regmixup.report.html_table import row_head, sortable, to_html
from regmixup.report.results import Results
from regmixup.report.selected import CAPTION, Selected
from regmixup.report.sources import sources
from regmixup.report.tables import Table


@dataclass(frozen=True)
class Section:
    """name: its anchor. body: HTML."""

    name: str
    title: str
    body: str

    def html(self) -> str:
        heading = f'<h2 id="{self.name}-title">{self.title}</h2>'
        return f'<section id="{self.name}" aria-labelledby="{self.name}-title">\n{heading}\n{self.body}</section>'


def web_file(name: str) -> str:
    """A file of the page, which comes with the package."""
    return (resources.files("regmixup.report") / "web" / name).read_text(encoding="utf-8")


# Each with its title and the part of a setting's data without which there is nothing to show.
_DRAWN = {
    "explorer": ("Between two images", "images"),
    "profiles": ("Entropy between classes", "path"),
    "mixing": ("How strongly images are mixed", "mixing"),
    "shift": ("Under corruption", "shift"),
    "detection": ("Out-of-distribution detection", "detected"),
    "calibration": ("Calibration", "reliability"),
    "selective": ("Answering only when sure", "scores"),
    "fisher": ("How far classes lie apart", "fisher"),
    "training": ("Training", "curves"),
}


def sections(
    results: Results, tables: Sequence[Table], shifted: Sequence[Table], data: Mapping[str, Any]
) -> Iterator[Section]:
    """Every section that the results have something for, in the page's order."""
    yield Section("results", "Results", _results(results, tables, shifted))
    if results.selected:
        yield Section("selected", "What was selected, and on what", _selected(Selected(results.selected)))
    if results.about.strip():
        parts = "".join(f"<p>{escape(part)}</p>" for part in results.about.strip().split("\n\n"))
        yield Section("about", "What this can and cannot show", f'<div class="note">{parts}</div>')
    settings = [
        {**one, "detected": one["detection"]["sets"], "curves": one["training"]["curves"]} for one in data["settings"]
    ]
    for name, (title, needed) in _DRAWN.items():
        if any(any(setting[needed]) for setting in settings):
            more = _cost(settings) if name == "training" else ""
            yield Section(name, title, web_file(f"sections/{name}.html") + more)
    yield Section("sources", "Where the numbers came from", _sources(results))


def _results(results: Results, tables: Sequence[Table], shifted: Sequence[Table]) -> str:
    several = len(tables) > 1
    parts = [
        '<div class="controls"><label class="check"><input type="checkbox" id="facts" checked> '
        "n, p and the paper's number in every cell</label></div>"
    ]
    for index, (setting, table, second) in enumerate(zip(results.settings, tables, shifted, strict=True)):
        heading = f"<h3>{escape(setting.title)}</h3>" if several else ""
        parts.append(f"{heading}{to_html(table, f'main-{index}')}{_remarks(table)}")
        if second.columns:
            drawn = to_html(second, f"main-{index}-shift") + _remarks(second)
            parts.append(f"<details><summary>Calibration under shift</summary>{drawn}</details>")
    if several:
        options = "".join(f'<option value="{i}">{escape(s.title)}</option>' for i, s in enumerate(results.settings))
        picker = f'<select id="setting" data-choose="setting" data-number>{options}</select>'
        parts.append(f'<div class="controls"><label>Everything below is of {picker}</label></div>')
    return "".join(parts)


def _selected(selected: Selected) -> str:
    lines = []
    for recipe, *rest in selected.lines():
        cells = "".join(f'<td data-value="{escape(text)}">{escape(text)}</td>' for text in rest)
        lines.append(f"<tr>{row_head(recipe)}{cells}</tr>")
    return sortable(CAPTION, selected.heads(), lines)


def _remarks(table: Table) -> str:
    """What the signs in the cells mean; where print has a star, the page says which way the difference goes."""
    remarks = " ".join(table.grid().remarks)
    text = remarks.replace("*: differs", "▲ ▼: differs").replace("Second line: the", "Last line: the")
    return f'<p class="legend-text">{escape(text)}</p>'


def _cost(settings: Sequence[Mapping[str, Any]]) -> str:
    """Seconds of a run, for every method and setting, and relative to the first method."""
    parts = []
    for setting in settings:
        names, seconds = setting["methods"], setting["training"]["seconds"]
        lines = [
            f'<tr>{row_head(name)}<td data-value="{own}">{_seconds(own)}</td>'
            f'<td data-value="{own}">{own / (seconds[0] or 1):.2f}</td></tr>'
            for name, own in zip(names, seconds, strict=True)
        ]
        heads = ("method", "seconds per run", f"relative to {names[0]}")
        caption = f"Time to train, {setting['title']}: mean over seeds, members of an ensemble together"
        parts.append(sortable(caption, heads, lines))
    return "".join(parts)


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _sources(results: Results) -> str:
    parts = []
    for setting in results.settings:
        facts = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in sources(setting).items())
        heading = f"<h3>{escape(setting.title)}</h3>" if len(results.settings) > 1 else ""
        parts.append(f"{heading}<dl>{facts}</dl>")
    return "".join(parts)
