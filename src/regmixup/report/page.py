"""One self-contained HTML page: tables, figures and where the numbers came from. No script, no network."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from regmixup.evaluation.evaluate import MEAN
from regmixup.evaluation.scores import SCORES
from regmixup.methods import METHODS
from regmixup.report import figures
from regmixup.report.results import Results
from regmixup.report.tables import (
    Table,
    main_columns,
    paper_score,
    score_columns,
    shift_columns,
    tabulate,
)
from regmixup.storage import write_text

_TEMPLATE = Template((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))


def write_page(results: Results) -> Path:
    """Write report.html into the study's folder."""
    path = results.folder / "report.html"
    write_text(path, render(results))
    return path


def render(results: Results) -> str:
    """The whole page."""
    seeds = len(results.study["seeds"])
    table = tabulate(results.rows, main_columns(results.rows))
    return _TEMPLATE.substitute(
        title=escape(results.study["title"]),
        summary=escape(
            f"{len(results.methods)} methods, {seeds} seed{'s' if seeds != 1 else ''} each, recipe "
            f"“{results.study['recipe']}”. Mean and standard deviation (n = {seeds}) in percent; bold: best of its "
            "column as printed. AUROC uses the score the paper uses for the method: "
            + ", ".join(f"{method} {paper_score(method).replace('_', '-')}" for method in results.methods)
            + ". T is fitted on validation data by ECE; OOD scores use unscaled logits."
        ),
        main_table=_table(table),
        about="".join(f"<p>{escape(p)}</p>" for p in results.study["about"].strip().split("\n\n") if p),
        figures="\n".join(_figures(results)),
        scores=_score_tables(results),
        provenance=_provenance(results),
    )


def _table(table: Table, label: str = "method") -> str:
    """An HTML table; scrolls sideways on narrow screens."""
    arrows = {True: "&nbsp;↑", False: "&nbsp;↓", None: ""}
    head = "".join(f'<th scope="col">{escape(c.title)}{arrows[c.higher_is_better]}</th>' for c in table.columns)
    body = []
    for method, cells in table.lines.items():
        shown = []
        for cell in cells:
            if cell is None:
                shown.append("<td>–</td>")
                continue
            value = f"<b>{cell.shown}</b>" if cell.best else cell.shown
            shown.append(f"<td>{value} <small>{cell.spread}</small></td>")
        body.append(f'<tr><th scope="row">{escape(method)}</th>{"".join(shown)}</tr>')
    return (
        f'<div class="scroll"><table><thead><tr><th scope="col">{escape(label)}</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _figures(results: Results) -> list[str]:
    seeds = "summed over seeds" if len(results.study["seeds"]) > 1 else "one seed"
    found = []
    if results.study["evaluate"]["profile"]:
        found.append(
            _figure(
                "Entropy between classes",
                figures.entropy_heatmaps(results.entropy_profiles()),
                f"1,000 pairs of test images of different classes, mixed at 20 values of λ; counts {seeds}, the line "
                "is the mean. High entropy between classes and low entropy at both ends is what RegMixup is for.",
            )
        )
    found.append(
        _figure(
            "Reliability",
            figures.reliability_diagrams(results.reliability()),
            "Accuracy against confidence in 15 equal bins, all seeds pooled (so ECE differs a little from the mean "
            "over seeds above); a marker's size shows the share of samples. Below the diagonal: over-confident.",
        )
    )
    if results.ood:
        scores = {method: paper_score(method) for method in results.methods}
        found.append(
            _figure(
                "Out-of-distribution scores",
                figures.score_histograms(results.scores(), scores),
                "Distribution of the method's score, all seeds pooled, logarithmic. Filled: test images; lines: OOD "
                "sets. The further right of the filled area a line lies, the better it is detected.",
            )
        )
    curves = _severity_curves(results)
    if curves:
        found.append(
            _figure(
                "Accuracy under corruption",
                figures.severity_curves(curves),
                "Accuracy on the corrupted test set at severities 1 to 5; shaded: one standard deviation over seeds.",
            )
        )
    alphas = results.alphas()
    if alphas:
        found.append(
            _figure(
                "How strongly images are mixed",
                figures.beta_densities(alphas),
                "Density of λ; shaded: the central 80 % of its mass. Near 0 and 1 images are almost clean.",
            )
        )
    return found


def _severity_curves(results: Results) -> dict[str, dict[str, Sequence[tuple[float, float]]]]:
    pairs = dict.fromkeys(
        (r.dataset, r.corruption) for r in results.rows if r.severity is not None and r.corruption != MEAN
    )
    several = len({family for family, _ in pairs}) > 1
    return {
        f"{family} {corruption}" if several else corruption: {
            method: [(cell.mean, cell.std) if cell is not None else (math.nan, math.nan) for cell in cells]
            for method, cells in tabulate(results.rows, shift_columns(family, corruption)).lines.items()
        }
        for family, corruption in pairs
    }


def _figure(title: str, svg: str, caption: str) -> str:
    encoded = base64.b64encode(svg.encode()).decode()
    return (
        f"<figure><h3>{escape(title)}</h3>"
        f'<img alt="{escape(title)}: {escape(caption)}" src="data:image/svg+xml;base64,{encoded}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _score_tables(results: Results) -> str:
    """AUROC of every score, a table each, so that no choice of score hides another."""
    if not results.ood:
        return "<p>This study has no OOD sets.</p>"
    tables = []
    for score in SCORES:
        table = tabulate(results.rows, score_columns(results.rows, score))
        tables.append(f"<div><h3>{escape(score.replace('_', '-'))}</h3>{_table(table)}</div>")
    return f'<div class="grid">{"".join(tables)}</div>'


def _provenance(results: Results) -> str:
    """What all methods share, what each has of its own, and the surroundings of the runs."""
    configs = {method: results.run_json(method, "config.json")[0] for method in results.methods}
    records = [record for method in results.methods for record in results.run_json(method, "provenance.json")]
    first = configs[results.methods[0]]
    names = [name for name in first if name not in ("kind", "seed", "train_set")]
    shared = [name for name in names if all(config[name] == first[name] for config in configs.values())]
    own = [name for name in names if name not in shared]
    facts = {
        "recipe": _listed(first, shared),
        **{
            method: _listed(config | _posthoc(method, results), [*own, "posthoc"]) for method, config in configs.items()
        },
        "train set": ", ".join(f"{name} (sha256 {value[:16]}…)" for name, value in records[0]["data"].items()),
        "device": ", ".join(sorted({str(record["device"]) for record in records})),
        "training time": f"{sum(record['seconds'] for record in records):.0f} s over {len(records)} runs",
        "versions": ", ".join(f"{name} {value}" for name, value in records[0]["versions"].items()),
    }
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items()) + "</dl>"


def _posthoc(method: str, results: Results) -> dict[str, Any]:
    """What a method does to its predictions, in the form of a configuration's field."""
    spec = METHODS[method].at(results.study["recipe"]).posthoc if method in METHODS else None
    return {"posthoc": {"kind": spec.name, **spec.fields} if spec is not None else None}


def _listed(fields: Mapping[str, Any], names: Iterable[str]) -> str:
    """Fields with their values; a value with fields of its own as "RegMixup (alpha 20.0, eta 1.0)"."""

    def worded(value: Any) -> str:
        if not isinstance(value, dict):
            return "none" if value is None else str(value)
        inner = _listed(value, [name for name in value if name != "kind"])
        return f"{value['kind']} ({inner})" if inner else str(value["kind"])

    return ", ".join(f"{name} {worded(fields[name])}" for name in names)
