"""The page: one self-contained HTML file with tables, figures that its script draws, and the sources of the numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template
from typing import Any

from regmixup.names import counted, printable
from regmixup.report.aggregation import SCALED, Aggregation, Cell, paper_score
from regmixup.report.page_data import LEAST_P, page_data
from regmixup.report.results import INTRODUCED, Results, RunRecord, Setting, complete
from regmixup.report.tables import PERCENT, SELECTION_CAPTION, SelectionTable, Table, conclude, shifted_sets
from regmixup.types import MEAN, Quantity, Row

SCRIPTS = ("state", "panel", "figures", "tables", "explorer", "examples")
"""In the order of their dependencies."""


def render(results: Results, tables: Sequence[Table], shifted: Sequence[Table]) -> str:
    """Render the page. tables: the main table of every setting. shifted: its table of calibration under shift."""
    data = page_data(results)
    return assemble("regmixup report", results.title, _lead(results), sections(results, tables, shifted, data), data)


def assemble(kicker: str, title: str, lead: str, found: Iterable[PageSection], data: Mapping[str, Any]) -> str:
    """Put a page together from its sections and the data of its script."""
    found = list(found)
    return Template(web_file("page.html")).substitute(
        kicker=escape(kicker),
        title=escape(title),
        lead=escape(lead),
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
    parts = [f"{counted(len(labels), 'method')}, {counted(seeds, 'seed')} each: {titles}."]
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


@dataclass(frozen=True)
class PageSection:
    """name: its anchor. body: HTML."""

    name: str
    title: str
    body: str

    def html(self) -> str:
        heading = f'<h2 id="{self.name}-title">{self.title}</h2>'
        return f'<section id="{self.name}" aria-labelledby="{self.name}-title">\n{heading}\n{self.body}</section>'


def web_file(name: str) -> str:
    """Read a file of the page, which comes with the package."""
    return (resources.files("regmixup.report") / "web" / name).read_text(encoding="utf-8")


# The title of each, and the part of a setting's data that it needs.
DRAWN = {
    "explorer": ("Between two images", "images"),
    "profiles": ("Entropy between classes", "path"),
    "mixing": ("How strongly images are mixed", "mixing"),
    "shift": ("Under corruption", "shift"),
    "detection": ("Out-of-distribution detection", "detected"),
    "calibration": ("Calibration", "reliability"),
    "selective": ("Answering only when sure", "scores"),
    "examples": ("Images to look at", "examples"),
    "fisher": ("How far classes lie apart", "fisher"),
    "training": ("Training", "curves"),
}


def sections(
    results: Results, tables: Sequence[Table], shifted: Sequence[Table], data: Mapping[str, Any]
) -> Iterator[PageSection]:
    """Yield every section that the results have data for, in the page's order."""
    drawn = drawn_sections(data)
    yield short_section(conclusions(results, data), drawn)
    yield PageSection("results", "Results", _results(results, tables, shifted))
    if results.selected:
        selected = SelectionTable(results.selected)
        lines = [f"<tr>{row_head(recipe)}{text_cells(rest)}</tr>" for recipe, *rest in selected.lines()]
        table = sortable(SELECTION_CAPTION, selected.heads(), lines)
        yield PageSection("selected", "What was selected, and on what", table)
    if results.about.strip():
        parts = "".join(f"<p>{escape(part)}</p>" for part in results.about.strip().split("\n\n"))
        yield PageSection("about", "What this can and cannot show", f'<div class="note">{parts}</div>')
    yield from drawn
    yield PageSection("sources", "Where the numbers came from", _sources(results))


def drawn_sections(data: Mapping[str, Any], *, study: bool = True) -> list[PageSection]:
    """Return the sections of the figures that some setting has data for. study: as for `section_texts`."""
    settings = [
        {**one, "detected": one["detection"]["sets"], "curves": one["training"]["curves"]} for one in data["settings"]
    ]
    texts = section_texts(study=study)
    return [
        PageSection(name, title, texts[name] + (_cost(settings) if name == "training" else ""))
        for name, (title, needed) in DRAWN.items()
        if any(any(setting[needed]) for setting in settings)
    ]


def short_section(said: Iterable[tuple[str, str]], drawn: Iterable[PageSection]) -> PageSection:
    """Return the section "In short": for each section of the page a link and the sentences about it."""
    titles = {"results": "Results", **{one.name: one.title for one in drawn}}
    by_section: dict[str, list[str]] = {}
    for name, text in said:
        if name in titles:
            by_section.setdefault(name, []).append(text)
    items = (
        f'<li><a href="#{name}">{titles[name]}</a><br>{escape(" ".join(texts))}</li>'
        for name, texts in by_section.items()
    )
    return PageSection("short", "In short", f'<ul class="short">{"".join(items)}</ul>')


def conclusions(results: Results, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a section's name and one sentence of what its numbers show; the tests are those of the tables."""
    several = len(results.settings) > 1
    for setting, own in zip(results.settings, data["settings"], strict=True):
        for name, text in _setting_conclusions(setting, own):
            if text:
                yield name, f"{setting.title}: {text}" if several else text


def _setting_conclusions(setting: Setting, own: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    found = setting.aggregation
    test = next((q.dataset for q in found.quantities if q.metric == "accuracy" and not q.corruption), "")

    def said(title: str, quantity: Quantity, *, percent: bool = True) -> str:
        cells = found.column([quantity], labels=setting.labels, percent=percent)
        return conclude(title, quantity.metric, cells, unit=PERCENT if percent else "")

    yield "results", said("Accuracy on the test set", Quantity(test, "accuracy"))
    rows = [
        Row(method=label, seed=run.seed, metric="entropy", value=curve[len(curve) // 2])
        for label, curves in _path_means(setting).items()
        for run, curve in zip(setting.of(label), curves, strict=True)
    ]
    cells = Aggregation(rows, setting.design).column([Quantity("", "entropy")], percent=False)
    yield "profiles", conclude("Entropy half-way between two images", "entropy", cells, unit=" nats")
    mixing = "; ".join(f"{one['method']} draws 80 % of its λ {_ranges(one['densest'])}" for one in own["mixing"])
    yield "mixing", f"{mixing}." if mixing else ""
    for name in shifted_sets(found):
        yield "shift", said(f"Accuracy on {name}", Quantity(name, "accuracy", corruption=MEAN))
    for name in own["detection"]["sets"]:
        title = f"AUROC of {name.removesuffix('/test')} by each method's own score"
        yield "detection", said(title, Quantity(name, "auroc"))
    yield "calibration", said("ECE as trained", Quantity(test, "ece"))
    yield "calibration", said("ECE with T", Quantity(test, "ece", SCALED))
    yield "selective", said("The area under risk against coverage by MSP", Quantity(test, "aurc"))
    fisher = Quantity(test, "fisher_criterion")
    yield "fisher", said("The Fisher criterion on the test set", fisher, percent=False)
    methods, seconds = own["methods"], own["training"]["seconds"]
    if len(methods) > 1 and seconds[0]:
        slowest = max(range(len(methods)), key=seconds.__getitem__)
        times = f", {seconds[slowest] / seconds[0]:.2f} times as long as {methods[0]}" if slowest else ""
        yield "training", f"{methods[slowest]} takes longest to train{times}."


def _path_means(setting: Setting) -> dict[str, list[list[float]]]:
    """Return the mean entropy along paths between images, of every run, for the methods whose runs all have it."""
    found = {label: [run.figures.get("path", {}).get("mean") for run in setting.of(label)] for label in setting.labels}
    return {label: curves for label, curves in found.items() if all(curves)}


def _ranges(intervals: Sequence[Sequence[float]]) -> str:
    if len(intervals) == 1:
        return "from {:.2f} to {:.2f}".format(*intervals[0])
    return f"below {intervals[0][1]:.2f} or above {intervals[1][0]:.2f}"


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


def _remarks(table: Table) -> str:
    """Return what the signs in the cells mean; where print has a star, the page shows a direction."""
    remarks = " ".join(table.layout().remarks)
    text = remarks.replace("*: differs", "▲ ▼: differs").replace("Second line: the", "Last line: the")
    return f'<p class="legend-text">{escape(text)}</p>'


def _cost(settings: Sequence[Mapping[str, Any]]) -> str:
    """Return tables of the seconds of a run, for every method and setting, and relative to the first method."""
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


def section_texts(*, study: bool = True) -> dict[str, str]:
    """Return the parts of sections.html that do not depend on the results, by section.

    study: keep what speaks of seeds and of the paper; it stands between {{ and }}.
    """
    text = re.sub(r"\{\{(.*?)\}\}", r"\1" if study else "", web_file("sections.html"), flags=re.DOTALL)
    parts = re.split(r"<!-- (\w+) -->\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _sources(results: Results) -> str:
    parts = []
    for setting in results.settings:
        heading = f"<h3>{escape(setting.title)}</h3>" if len(results.settings) > 1 else ""
        parts.append(heading + definitions(sources(setting).items()))
    return "".join(parts)


def row_head(name: str) -> str:
    """Return the first cell of a line; long names may break after a plus and before a bracket."""
    breakable = escape(name).replace("+", "+<wbr>").replace("(", "<wbr>(")
    return f'<th scope="row" data-value="{escape(name)}">{breakable}</th>'


def text_cells(words: Iterable[object]) -> str:
    """Return cells of a line that hold words or whole numbers."""
    shown = (escape(printable(str(word))) for word in words)
    return "".join(f'<td data-value="{word}">{word}</td>' for word in shown)


def definitions(facts: Iterable[tuple[str, str]]) -> str:
    """Return a list of names with what there is to say about each."""
    shown = ((escape(printable(name)), escape(printable(text))) for name, text in facts)
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{text}</dd>' for name, text in shown)}</dl>"


def sortable(caption: str, heads: Iterable[str], lines: Iterable[str], *, methods: bool = False) -> str:
    """Return a table whose headings are buttons that sort; the script makes cards of one that is too wide.

    methods: its lines are the methods that figures show.
    """
    mark = " data-methods" * methods
    buttons = "".join(f'<th scope="col"><button type="button" class="sort">{escape(h)}</button></th>' for h in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"{mark}><table>'
        f'<caption class="legend-text">{escape(caption)}</caption>'
        f"<thead><tr>{buttons}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def to_html(table: Table, name: str) -> str:
    """Write a table; cells have mean ± std, n, p against the reference method, the paper's number and the difference.

    name: unique in the page, for the links between cells and notes. Notes follow the table, as letters.
    """
    notes = table.layout().notes()
    lines = [
        f"<tr>{row_head(method)}{''.join(_cell(cell, notes, name) for cell in cells)}</tr>"
        for method, cells in table.lines.items()
    ]
    listed = "".join(f'<li id="{name}-{mark}">{escape(note)}</li>' for note, mark in notes.items())
    drawn = sortable(table.caption, ["method", *(column.heading for column in table.columns)], lines, methods=True)
    return drawn + (f'<ol class="notes" type="a">{listed}</ol>' if listed else "")


def _cell(cell: Cell | None, notes: Mapping[str, str], name: str) -> str:
    if cell is None:
        return "<td>–</td>"
    marks = " bold" * cell.best + " underline" * cell.best_overall
    links = ",".join(f'<a href="#{name}-{notes[note]}">{notes[note]}</a>' for note in cell.notes)
    seeds = '<span class="single">n 1</span>' if cell.n == 1 else f"<span>n {cell.n}</span>"
    lines = [
        f'<span class="mean{marks}">{cell.shown}</span>'
        + (f"<sup>{links}</sup>" if links else "")
        + (f' <span class="std">{cell.spread}</span>' if cell.spread else ""),
        f'<span class="fact">{seeds}{_against(cell)}</span>',
    ]
    if cell.paper is not None:
        lines.append(f'<span class="fact">paper {escape(cell.paper.text)}, {cell.difference}</span>')
    return f'<td data-value="{cell.mean:.6g}">{"".join(lines)}</td>'


def _against(cell: Cell) -> str:
    """Return whether, and in which direction, the cell differs from the reference method's."""
    if cell.against is None:
        return ""
    chance = f"p &lt; {LEAST_P}" if cell.against.p < LEAST_P else f"p {cell.against.p:.2g}"
    if cell.better is None:
        return f" <span>{chance}</span>"
    kind, sign, word = ("good", "▲", "better") if cell.better else ("bad", "▼", "worse")
    return f' <span class="{kind}">{sign} <span class="hidden">{word}</span> {chance}</span>'


def sources(setting: Setting) -> dict[str, str]:
    """Return the facts about a setting's runs by name: what methods share, what each has, device and versions."""
    configs = {label: complete(setting.of(label)[0].config) for label in setting.labels}
    records = [run.provenance for run in setting.runs]
    first = configs[setting.labels[0]]
    names = [
        name
        for name in first
        if name not in ("kind", "seed", "train_set")
        and any(config.get(name) != INTRODUCED.get(name, ...) for config in configs.values())
    ]
    shared = [name for name in names if all(config.get(name) == first[name] for config in configs.values())]
    own = [name for name in names if name not in shared]
    posthoc = {label: {"posthoc": setting.of(label)[0].posthoc} for label in setting.labels}
    return {
        "recipe": _listed(first, shared),
        **{label: _listed(config | posthoc[label], [*own, "posthoc"]) for label, config in configs.items()},
        "train set": ", ".join(f"{name} (sha256 {value[:16]}…)" for name, value in records[0]["data"].items()),
        "device": ", ".join(sorted({str(record["device"]) for record in records})),
        "training time": _training_time(setting.runs),
        "versions": ", ".join(f"{name} {value}" for name, value in records[0]["versions"].items()),
    }


def _training_time(runs: Sequence[RunRecord]) -> str:
    """Tell how long training took, each run once: labels may share runs, and an ensemble has its members."""
    names = {run.folder.name for run in runs}
    seconds = {}
    for run in runs:
        members = run.provenance.get("members", ())
        if not (members and names.issuperset(members)):
            seconds[run.key] = run.provenance["seconds"]
    return f"{sum(seconds.values()):.0f} s over {counted(len(seconds), 'run')}"


def _listed(values: Mapping[str, Any], names: Iterable[str]) -> str:
    """List fields with their values; a value with fields of its own as "RegMixup (alpha 20.0, eta 1.0)"."""

    def worded(value: Any) -> str:
        if not isinstance(value, dict):
            return "none" if value is None else str(value)
        inner = _listed(value, [name for name, content in value.items() if name != "kind" and content is not None])
        return f"{value['kind']} ({inner})" if inner else str(value["kind"])

    return ", ".join(f"{name} {worded(values.get(name))}" for name in names)
