"""The page of a study: one self-contained HTML file with tables, figures, and the sources of the numbers.

templates/ has the HTML, web/ the style and the script that draws figures, and `regmixup.report.script_data` the data of
that script. A page is a list of sections, whichever of them the results have data for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from regmixup.names import counted, printable
from regmixup.recipes import Recipe
from regmixup.report.leaderboard import leaderboard
from regmixup.report.results import Results, Setting
from regmixup.report.script_data import LEAST_P, script_data
from regmixup.report.tables import SELECTION, Table, selection_table

SCRIPTS = ("state", "panel", "figures", "tables", "explorer", "examples")
"""In the order of their dependencies."""
ABOUT = "What this can and cannot show"
"""The heading of what a study says about its results."""
DRAWN = {
    "explorer": ("Between two images", "images"),
    "profiles": ("Entropy between classes", "path"),
    "mixing": ("How strongly images are mixed", "mixing"),
    "shift": ("Under corruption", "shift"),
    "detection": ("Out-of-distribution detection", "ood"),
    "calibration": ("Calibration", "reliability"),
    "selective": ("Answering only when sure", "scores"),
    "examples": ("Images to look at", "examples"),
    "fisher": ("How far classes lie apart", "fisher"),
    "training": ("Training", "curves"),
}
"""Sections that the script draws: the title of each, and the part of a setting's data that it needs."""


_INTRODUCED = {f.name: f.metadata["introduced"] for f in fields(Recipe) if "introduced" in f.metadata}
LATER_FIELDS = {"plugins": [], **Recipe.retired, **json.loads(json.dumps(_INTRODUCED))}
"""Fields of config.json that not every run has, with the values of those that lack them."""


@dataclass(frozen=True)
class PageSection:
    """name: its anchor. body: HTML."""

    name: str
    title: str
    body: str


def study_page(results: Results, tables: Sequence[Sequence[Table]]) -> str:
    """Return the page of a study. tables: those of every setting."""
    data = script_data(results)
    return html_page("regmixup report", results.title, _lead(results), _sections(results, tables, data), data)


def html_page(kicker: str, title: str, lead: str, sections: Iterable[PageSection], data: Mapping[str, Any]) -> str:
    """Return a page of these sections. data: of its script."""
    return _TEMPLATES.get_template("page.html").render(
        kicker=kicker,
        title=title,
        lead=lead,
        sections=list(sections),
        css=_web_file("page.css"),
        # "<" could end the element that holds the data.
        data=json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"),
        script="\n".join(_web_file(f"{name}.js") for name in SCRIPTS),
    )


def _web_file(name: str) -> str:
    return (resources.files("regmixup.report") / "web" / name).read_text(encoding="utf-8")


def _breakable(name: str) -> Markup:
    return Markup(str(escape(name)).replace("+", "+<wbr>").replace("(", "<wbr>("))


_TEMPLATES = Environment(
    loader=PackageLoader("regmixup.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"breakable": _breakable, "printable": lambda word: printable(str(word))}
_TEMPLATES.globals["least_p"] = LEAST_P


def fill(template: str, macro: str, *values: Any, **named: Any) -> str:
    """Return what a macro of a template makes of some values."""
    return str(getattr(_TEMPLATES.get_template(template).module, macro)(*values, **named))


def definitions(facts: Iterable[tuple[str, str]]) -> str:
    """Return a list of names with what there is to say about each."""
    return fill("tables.html", "definitions", facts)


def _lead(results: Results) -> str:
    labels = {run.label for run in results.runs}
    seeds = max(len(setting.runs_of(label)) for setting in results.settings for label in setting.labels)
    titles = ", ".join(dict.fromkeys(setting.title for setting in results.settings))
    fitted = any(row.posthoc == "temperature" for row in results.rows)
    counts = f"{counted(len(labels), 'method')}, {counted(seeds, 'seed')} each: {titles}."
    return f"{counts} T is fitted on validation data." if fitted else counts


def _sections(results: Results, tables: Sequence[Sequence[Table]], data: Mapping[str, Any]) -> Iterator[PageSection]:
    """Yield every section that the results have data for, in the page's order."""
    titles = [setting.title for setting in results.settings]
    boards = [leaderboard(setting) for setting in results.settings]
    yield PageSection("leaderboard", "Leaderboard", fill("study.html", "leaderboards", boards))
    yield PageSection("results", "Results", fill("study.html", "results", list(zip(titles, tables, strict=True))))
    if results.selected:
        heads, *lines = selection_table(results.selected)
        chosen = fill("tables.html", "word_table", SELECTION, heads, lines)
        yield PageSection("selected", "What was selected, and on what", chosen)
    if results.about.strip():
        yield PageSection("about", ABOUT, fill("study.html", "about", results.about))
    yield from drawn_sections(data, study=True)
    facts = list(zip(titles, map(sources, results.settings), strict=True))
    yield PageSection("sources", "Where the numbers came from", fill("study.html", "sources", facts))


def drawn_sections(data: Mapping[str, Any], *, study: bool, **facts: Mapping[str, object]) -> list[PageSection]:
    """Return the sections of the figures that some setting has data for.

    study: speak of seeds and of the paper. facts: what else the template of a section needs, by its name.
    """
    return [
        PageSection(name, title, fill("figures.html", name, study=study, **facts.get(name, {})))
        for name, (title, needed) in DRAWN.items()
        if any(any(setting[needed]) for setting in data["settings"])
    ]


def sources(setting: Setting) -> dict[str, str]:
    """Return the facts about a setting's runs by name: what methods share, what each has, device and versions."""
    configs = {}
    for label in setting.labels:
        run = setting.runs_of(label)[0]
        lacking = {name: value for name, value in LATER_FIELDS.items() if name not in run.config}
        configs[label] = {**run.config, **lacking, "posthoc": run.posthoc}
    first = configs[setting.labels[0]]
    shared, unlike = [], []
    for name in first:
        if name in ("kind", "seed", "train_set", "posthoc"):
            continue
        if any(config.get(name) != first[name] for config in configs.values()):
            unlike.append(name)
        elif name not in LATER_FIELDS or first[name] != LATER_FIELDS[name]:
            shared.append(name)
    records = [run.provenance for run in setting.runs]
    digests = [{name: f"(sha256 {digest[:16]}…)" for name, digest in record["data"].items()} for record in records]
    return {
        "recipe": _listed(first, shared),
        **{label: _listed(config, [*unlike, "posthoc"]) for label, config in configs.items()},
        "train set": _united(digests),
        "device": ", ".join(sorted({str(record["device"]) for record in records})),
        "versions": _united([record["versions"] for record in records]),
    }


def _united(records: Sequence[Mapping[str, object]]) -> str:
    """List what the runs recorded by name; where they differ, as after merging archives, all of it.

    >>> _united([{"torch": "2.11", "numpy": "2.4"}, {"torch": "2.12", "numpy": "2.4"}])
    'torch 2.11 and 2.12, numpy 2.4'
    """
    texts: dict[str, set[str]] = {}
    for record in records:
        for name, value in record.items():
            texts.setdefault(name, set()).add(str(value))
    return ", ".join(f"{name} {' and '.join(sorted(distinct))}" for name, distinct in texts.items())


def _listed(values: Mapping[str, Any], names: Iterable[str]) -> str:
    """List fields with their values, as "epochs 350, objective RegMixup (alpha 20.0, eta 1.0)"."""
    return ", ".join(f"{name} {_worded(values.get(name))}" for name in names)


def _worded(value: Any) -> str:
    if not isinstance(value, dict):
        return "none" if value is None else str(value)
    inner = _listed(value, [name for name, content in value.items() if name != "kind" and content is not None])
    return f"{value['kind']} ({inner})" if inner else str(value["kind"])
