"""The page of any model's predictions: one model, or two side by side with paired intervals.

It has the parts of a study's report: a summary, figures, and every row on request. The HTML is
in templates/evaluation.html.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regmixup.evaluation.compare import PLAIN, Difference, Measured, measure_models
from regmixup.evaluation.curves import Look, examples, reliability_bins, score_curves
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.calibration import BINNED_INTERVALS
from regmixup.metrics.scores import fit_scores
from regmixup.names import printable
from regmixup.posthoc import as_given
from regmixup.predictions.store import load
from regmixup.report.aggregation import DETECTION, SCALED, SCORES, Aggregation
from regmixup.report.leaderboard import ValueCell
from regmixup.report.page import PageSection, assemble, definitions, drawn_sections, fill
from regmixup.report.script_data import Cells, pooled_figures, script_constants
from regmixup.storage import write_text
from regmixup.types import MEAN, Predictions, Quantity, Row

Images = Mapping[str, Look | Sequence[Any]]
"""The images of sets by name: a sequence, or a function from places to images (`evaluation.curves.Look`)."""
_MOST_ROWS = 3000


def write_page(
    path: str | Path,
    predictions: Measured | ModelPredictions | Predictions | str | Path,
    *,
    against: ModelPredictions | Predictions | str | Path | None = None,
    images: Images | None = None,
    classes: Sequence[str] = (),
    title: str = "",
    score: str | None = None,
    errors_by: str = "max_probability",
    bootstrap: Bootstrap | None = Bootstrap(),  # noqa: B008 a frozen value
    kicker: str = "regmixup evaluation",
    lead: str = "",
    sections: Sequence[PageSection] = (),
) -> Measured:
    """Write one self-contained HTML page, and return what was measured for it.

    predictions: of the test set, in memory or a file; `ModelPredictions` with validation, shifted and OOD sets, too;
    or what `measure_models` returned, which is then not measured again. against: likewise, of a second model, which
    must have predicted the same images. images: of any of the sets, by its name, for examples of errors, rejected and
    wrongly accepted images. classes: their names. score: the OOD score of the summary, by default Dempster-Shafer.
    errors_by: the score of its AURC. bootstrap: behind the intervals; None leaves them out. kicker, lead: words above
    the title and first below it. sections: further ones, behind the figures.
    """
    if isinstance(predictions, Measured):
        if against is not None:
            raise ValueError("against must be left out where models are measured already: pass it to measure_models")
        measured = predictions
    else:
        other = _model(against) if against is not None else None
        measured = measure_models(_model(predictions), other, bootstrap=bootstrap)
    data, lines = _page_data(measured, images or {}, classes, score), summarize(measured, score, errors_by)
    lead = " ".join(filter(None, [lead, _lead(measured)]))
    title = title or " against ".join(model_names(measured))
    write_text(Path(path), assemble(kicker, title, lead, _sections(measured, lines, data, sections), data))
    return measured


def _model(predictions: ModelPredictions | Predictions | str | Path) -> ModelPredictions:
    if isinstance(predictions, (str, Path)):
        return ModelPredictions(test=load(predictions), name=Path(predictions).stem)
    return predictions if isinstance(predictions, ModelPredictions) else ModelPredictions(test=predictions)


@dataclass(frozen=True)
class SummaryLine:
    """One quantity: title, the row of every model, and the difference of two."""

    title: str
    rows: Sequence[Row | None]
    difference: Difference | None = None

    def values(self) -> list[str]:
        """Return the value of every model as it is shown."""
        return [shown(row.metric, row.value) if row is not None else "–" for row in self.rows]

    def intervals(self) -> list[str]:
        """Return the interval of every model's value; "" where there is none."""
        return [interval(row.metric, row.low, row.high) if row is not None else "" for row in self.rows]

    @property
    def metric(self) -> str:
        return next(row.metric for row in self.rows if row is not None)


def summarize(measured: Measured, score: str | None = None, errors_by: str = "max_probability") -> list[SummaryLine]:
    """Return what to read first: accuracy, calibration, NLL, accuracy under shift, and an AUROC for each OOD set.

    score: of the AUROC, see `write_page`; errors_by: of the AURC.
    """
    tables = [{row.quantity: row for row in rows} for rows in measured.rows]
    places = list(tables[0])
    test = next(place.dataset for place in places if place.metric == "accuracy" and not place.corruption)
    chosen = _summary_score(measured, score)
    wanted = [
        ("accuracy", Quantity(test, "accuracy")),
        ("ECE", Quantity(test, "ece")),
        ("ECE with T", Quantity(test, "ece", SCALED)),
        ("T", Quantity(test, "temperature", SCALED)),
        ("NLL", Quantity(test, "nll")),
        ("AURC", Quantity(test, "aurc", score=errors_by)),
    ]
    wanted += [
        (f"{title}, {place.dataset.removesuffix('/test')}", place)
        for place in places
        for metric, title in (("accuracy", "accuracy"), ("ece", "ECE"))
        if (place.corruption, place.metric, place.posthoc) == (MEAN, metric, "none")
    ]
    wanted += [
        (f"AUROC, {place.dataset.removesuffix('/test')}", place)
        for place in places
        if (place.metric, place.score) == ("auroc", chosen)
    ]
    return [
        SummaryLine(title, [table.get(place) for table in tables], measured.differences.get(place))
        for title, place in wanted
        if place in tables[0]
    ]


def scores_said(lines: Iterable[SummaryLine]) -> str:
    """Say which metrics are by which score, for the end of a sentence: "; AUROC by Dempster-Shafer"."""
    by_score: dict[str, list[str]] = {}
    for line in lines:
        for score in {row.score for row in line.rows if row is not None and row.score}:
            by_score.setdefault(score, []).append(line.metric.upper())
    return "".join(
        f"; {' and '.join(dict.fromkeys(metrics))} by {SCORES.get(score, score.replace('_', ' '))}"
        for score, metrics in by_score.items()
    )


def _summary_score(measured: Measured, score: str | None) -> str:
    scores = list(dict.fromkeys(row.score for row in measured.rows[0] if row.score))
    return next((name for name in (score, "dempster_shafer", "entropy", *scores) if name in scores), "")


def shown(metric: str, value: float, *, signed: bool = False) -> str:
    """Return a value in percent, or with four digits where it is no fraction.

    >>> shown("accuracy", 0.9512), shown("nll", 0.25), shown("ece", -0.01, signed=True)
    ('95.12', '0.2500', '−1.00')
    """
    sign = "+" if signed else ""
    return (f"{value:{sign}.4f}" if metric in PLAIN else f"{100 * value:{sign}.2f}").replace("-", "−")


def interval(metric: str, low: float | None, high: float | None, *, signed: bool = False) -> str:
    """Return the bounds of an interval as they are shown; "" where there are none."""
    if low is None or high is None:
        return ""
    return f"{shown(metric, low, signed=signed)} to {shown(metric, high, signed=signed)}"


def model_names(measured: Measured) -> list[str]:
    """Return what the models are called."""
    return [printable(model.name) or "the model" for model in measured.models]


def _apart(metric: str, difference: Difference) -> str:
    """Return a difference, and its interval where there is one."""
    bounds = interval(metric, difference.low, difference.high, signed=True)
    return shown(metric, difference.value, signed=True) + (f" ({bounds})" if bounds else "")


@dataclass(frozen=True)
class _IntervalCells(Cells):
    """Cells with the interval of every value and, of the first model, the difference from the second."""

    differences: Mapping[Quantity, Difference]
    first_score: str

    def column(self, quantities: Sequence[Quantity]) -> list[Any]:
        return [self._cell(quantities, label, first=index == 0) for index, label in enumerate(self.labels)]

    def _cell(self, quantities: Sequence[Quantity], label: str, *, first: bool) -> list[Any] | None:
        rows = [row for quantity in quantities for row in self.aggregation.rows(quantity, label)]
        if not rows or len(rows) < len(quantities):
            return None
        if len(rows) > 1:
            mean = math.fsum(row.value for row in rows) / len(rows)
            return [round(100 * mean, 2), None, 1, None, 0, 0, None, []]
        row = rows[0]
        facts = [interval(row.metric, row.low, row.high)]
        difference = self.differences.get(row.quantity)
        better = difference.better if difference is not None else None  # of the first model
        if difference is not None and first:
            facts.append({True: "▲ better: ", False: "▼ worse: ", None: ""}[better] + _apart(row.metric, difference))
        verdict = {True: 1, False: -1, None: 0}[better] if first else 0
        best = int(better == first)  # the second where the first is worse
        return [round(100 * row.value, 2), None, row.n, None, verdict, best, None, [*filter(None, facts)]]

    def detection(self) -> dict[str, Any]:
        """Return the cells by score, the summary's first; here the paper's choice of scores plays no part."""
        detection = super().detection()
        order = sorted(detection["scores"], key=lambda name: name != self.first_score)
        cells = {metric: {name: detection["cells"][metric][name] for name in order} for metric in DETECTION}
        return {**detection, "scores": order, "paper": None, "first": self.first_score, "cells": cells}


def _page_data(measured: Measured, images: Images, classes: Sequence[str], score: str | None) -> dict[str, Any]:
    names = model_names(measured)
    rows = [replace(row, method=name) for name, rows in zip(names, measured.rows, strict=True) for row in rows]
    cells = _IntervalCells(names, Aggregation(rows), measured.differences, _summary_score(measured, score))
    looks = {name: _look(sequence) for name, sequence in images.items()}
    figures = [
        [_figures(model, rows, looks, classes)] for model, rows in zip(measured.models, measured.rows, strict=True)
    ]
    setting = {
        "name": "", "title": "", "seeds": 1, **cells.data(), "mixing": [],
        "training": {"curves": [], "seconds": []}, **pooled_figures(figures),
    }  # fmt: skip
    return {**script_constants(), "settings": [setting]}


def _look(images: Look | Sequence[Any]) -> Look:
    return images if callable(images) else lambda places: [images[place] for place in places]


def _figures(
    model: ModelPredictions, rows: Sequence[Row], looks: Mapping[str, Look], classes: Sequence[str]
) -> dict[str, Any]:
    """Return what the figures draw of one model, in the form that a study stores of a run."""
    treat: Callable[..., Predictions] = model.posthoc if model.posthoc is not None else as_given
    versions = {"none": treat(model.test)}
    temperature = next((row.value for row in rows if row.metric == "temperature"), None)
    if temperature is not None:
        versions[SCALED] = treat(model.test, temperature)
    ood = [treat(predictions) for predictions in model.ood]
    figures = {
        "reliability": reliability_bins(versions),
        "scores": score_curves(versions["none"], ood, fit_scores(model.train)),
    }
    if looks:
        figures["examples"] = examples(versions["none"], ood, looks, classes=classes)
    return figures


def _lead(measured: Measured) -> str:
    test = measured.models[0].test
    parts = [f"{len(test):,} test images of {test.logits.shape[1]} classes."]
    if measured.bootstrap is not None:
        level, count = f"{100 * measured.bootstrap.level:g} %", f"{measured.bootstrap.resamples:,}"
        parts.append(f"Intervals are {level} bootstrap intervals over images, {count} resamples.")
        if len(measured.models) > 1:
            parts.append(
                "Both models are measured on the same resamples, so the interval of a difference is paired; one that "
                "does not hold 0 is marked ▲ or ▼. They say nothing about training again with another seed."
            )
    return " ".join(parts)


def _sections(
    measured: Measured, lines: Sequence[SummaryLine], data: Mapping[str, Any], further: Sequence[PageSection]
) -> Iterator[PageSection]:
    yield PageSection("results", "Results", _summary_table(measured, lines))
    yield from drawn_sections(data, study=False)
    yield from further
    yield PageSection("rows", "All rows", _all_rows(measured))
    yield PageSection("sources", "Where the numbers came from", definitions(_sources(measured)))


def _cells(
    measured: Measured, rows: Iterable[Row | None], metric: str, difference: Difference | None
) -> list[ValueCell | None]:
    """Return a cell for the row of every model and, of two models, one for their difference."""
    cells = [
        ValueCell(row.value, shown(metric, row.value), interval(metric, row.low, row.high)) if row is not None else None
        for row in rows
    ]
    if len(measured.models) > 1:
        apart = None
        if difference is not None:
            bounds = interval(metric, difference.low, difference.high, signed=True)
            text = shown(metric, difference.value, signed=True)
            apart = ValueCell(difference.value, text, bounds, difference.better)
        cells.append(apart)
    return cells


def _heads(measured: Measured) -> list[str]:
    names = model_names(measured)
    return [*names, *(["difference"] if len(names) > 1 else [])]


def _summary_table(measured: Measured, lines: Sequence[SummaryLine]) -> str:
    cells = [(line.title, _cells(measured, line.rows, line.metric, line.difference)) for line in lines]
    minus = f"; difference: {' − '.join(model_names(measured))}" if len(measured.models) > 1 else ""
    caption = f"In percent but for T and NLL{scores_said(lines)}{minus}"
    remark = BINNED_INTERVALS if measured.bootstrap is not None else ""
    return fill("evaluation.html", "summary", caption, _heads(measured), cells, remark)


def _all_rows(measured: Measured) -> str:
    tables = [{row.quantity: row for row in rows} for rows in measured.rows]
    lines = []
    for place in list(tables[0])[:_MOST_ROWS]:
        severity = "" if place.severity is None else f" {place.severity}"
        words = (place.corruption + severity, place.score or place.posthoc, place.metric)
        rows = [table.get(place) for table in tables]
        cells = _cells(measured, rows, place.metric, measured.differences.get(place))
        lines.append((printable(place.dataset) or "test", words, cells))
    return fill("evaluation.html", "rows", _heads(measured), lines, len(tables[0]))


def _sources(measured: Measured) -> Iterator[tuple[str, str]]:
    """Yield the sets of every model, and where its T comes from."""
    for name, model, rows in zip(model_names(measured), measured.models, measured.rows, strict=True):
        sets: dict[str, Sequence[Predictions | None]] = {
            "test": [model.test],
            "validation": [model.validation],
            "train": [model.train],
            "shifted": model.shift,
            "OOD": model.ood,
        }
        told = [f"{kind}: {text}" for kind, members in sets.items() if (text := _listed_sets(members))]
        origin = "fitted on validation data by ECE" if model.temperature is None else "given"
        told += [f"T {row.value:.3f}, {origin}" for row in rows if row.metric == "temperature"]
        yield name, "; ".join(told)


def _listed_sets(sets: Sequence[Predictions | None]) -> str:
    """Return the sets with the numbers of their images; of many, the number of sets and the first of them."""
    there = [predictions for predictions in sets if predictions is not None]
    listed = ", ".join(f"{predictions.dataset or 'unnamed'} ({len(predictions):,})" for predictions in there[:4])
    return listed if len(there) <= 4 else f"{len(there)} sets: {listed}, …"
