"""The page of any model's predictions: one model, or two side by side with paired intervals.

Of one model it begins with what the model answers (`regmixup.report.answers`); of two, with their differences. The
metrics and figures of a study's report follow. The HTML is in templates/evaluation.html.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from regmixup.evaluation.class_subset import restrict_predictions
from regmixup.evaluation.compare import Difference, Measured, measure_models
from regmixup.evaluation.curves import GetImages, accepting_threshold, competing_classes, model_figures
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.calibration import BINNED_INTERVALS
from regmixup.names import check_name, counted, printable, shortened
from regmixup.posthoc import as_given, probabilities
from regmixup.predictions.store import load
from regmixup.report.aggregation import DETECTION, SCALED, Aggregation
from regmixup.report.answers import EVERYTHING, Answers
from regmixup.report.figures import pooled_figures, pooled_history
from regmixup.report.leaderboard import ShownValue
from regmixup.report.page import PageSection, definitions, drawn_sections, fill, html_page
from regmixup.report.script_data import ScriptTables, script_constants
from regmixup.report.units import unit_of, units_of
from regmixup.storage import write_text
from regmixup.types import MEAN, Predictions, Quantity, Row

Images = Mapping[str, GetImages | Sequence[Any]]
"""The images of sets by name: a sequence, or a function from places to images (`evaluation.curves.GetImages`)."""
_SCORES = {"dempster_shafer": "Dempster-Shafer", "max_probability": "MSP"}
"""Scores as prose writes them, where their names are not words."""
_MOST_SETS = 4
_FEWEST_DRAWN = 50
"""Test images of a reliability diagram, at least: of fewer, it is a dot or two."""
MEANINGS = {
    "accuracy": "the share of images whose most probable class is the true one",
    "ece": "expected calibration error: the gap between stated probabilities and the share of right answers; 0 is best",
    "temperature": "the temperature divides the logits: above 1, every answer becomes less sure; below 1, more sure; "
    "no predicted class changes",
    "nll": "negative log-likelihood: the mean of −log p of the true class; confident mistakes cost most",
    "aurc": "area under the risk-coverage curve: the mean error rate when only the most confident answers are given",
    "auroc": "how often the model is less sure of an out-of-distribution image than of a test image; 50 is chance, "
    "100 is best",
}
"""One line about each metric of a summary; docs/concepts.md has the same words."""


def write_page(
    path: str | Path,
    predictions: ModelPredictions | Predictions | str | Path,
    *,
    against: ModelPredictions | Predictions | str | Path | None = None,
    images: Images | None = None,
    classes: Sequence[str] = (),
    title: str = "",
    score: str | None = None,
    bootstrap: Bootstrap | None = Bootstrap(),  # noqa: B008 a frozen value
) -> Measured:
    """Write one self-contained HTML page, and return what was measured for it.

    predictions: of the test set, in memory or a file; `ModelPredictions` with validation, shifted and OOD sets, too.
    against: of a second model, which must have predicted the same images. images: of the test set and of OOD sets, by
    name, for examples of errors, unsure and wrongly accepted images. classes: their names. score: the OOD score of the
    summary, by default entropy with the maximum probability (MSP) beside it. bootstrap: of the intervals, or None.
    """
    model, other = _model(predictions), _model(against) if against is not None else None
    images_of = _image_getters(images or {}, model)  # before all is measured, which takes a while
    measured = measure_models(model, other, bootstrap=bootstrap)
    if score is not None:
        check_name("score", score, {row.score for row in measured.rows[0] if row.score})
    write_text(Path(path), models_page(measured, images=images_of, classes=classes, title=title, score=score))
    return measured


def models_page(
    measured: Measured,
    *,
    images: Images | None = None,
    classes: Sequence[str] = (),
    title: str = "",
    score: str | None = None,
    errors_by: str = "max_probability",
    kicker: str = "regmixup evaluation",
    lead: str = "",
    answers: Answers | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    sections: Sequence[PageSection] = (),
) -> str:
    """Return the page of one model or two that have been measured; images, classes and score as in `write_page`.

    errors_by: the score of the summary's AURC, and of the answers. kicker, lead: words above the title and first below
    it. answers: those of a predictor, where one decides; else one model gets thresholds that accept shares of the test
    images. history: of the training, a record per epoch. sections: further ones, behind the figures.
    """
    test = measured.models[0].test
    images_of = _image_getters(images or {}, measured.models[0])
    given = "given" if answers is None else "from the predictor"
    if len(measured.models) == 1:
        answers = answers or _answers(measured, images_of, classes, errors_by)
        images_of.pop(test.dataset, None)  # shown as mistakes, so not among the examples
    data = _page_data(measured, images_of, classes, score, history)
    first = [*answers.sections()] if answers is not None else []
    drawn = drawn_sections(
        data,
        study=False,
        detection={"alone": len(measured.models) == 1},
        calibration={"few": len(test) if len(test) < _FEWEST_DRAWN else 0},
    )
    summary = _summary_table(measured, summarize(measured, score, errors_by))
    parts = [
        *first,
        *(section for section in drawn if section.name == "training"),
        PageSection("results", "Metrics" if first else "Results", summary),
        *(section for section in drawn if section.name != "training"),
        *sections,
        PageSection("sources", "Where the numbers came from", definitions(_sources(measured, given))),
    ]
    title = title or " against ".join(model_names(measured))
    lead = lead or f"{len(test):,} test images of {test.logits.shape[1]} classes."
    return html_page(kicker, title, lead, parts, data)


def _model(predictions: ModelPredictions | Predictions | str | Path) -> ModelPredictions:
    if isinstance(predictions, (str, Path)):
        return ModelPredictions(test=load(predictions), name=Path(predictions).stem)
    model = predictions if isinstance(predictions, ModelPredictions) else ModelPredictions(test=predictions)
    # Figures tell sets apart by their names.
    ood = [part if part.dataset else replace(part, dataset="OOD") for part in model.ood]
    return replace(model, test=replace(model.test, dataset=model.test.dataset or "test"), ood=ood)


@dataclass(frozen=True)
class SummaryLine:
    """One quantity: a cell for every model and, of two, one for their difference; None where there is no value."""

    title: str
    quantity: Quantity
    cells: Sequence[ShownValue | None]


def summarize(measured: Measured, score: str | None = None, errors_by: str = "max_probability") -> list[SummaryLine]:
    """Return what to read first: accuracy, calibration, NLL, accuracy under shift, and AUROCs for each OOD set.

    score: of the AUROCs, see `write_page`; errors_by: of the AURC.
    """
    tables = [{row.quantity: row for row in rows} for rows in measured.rows]
    places = list(tables[0])
    test = next(place.dataset for place in places if place.metric == "accuracy" and not place.corruption)
    scores = _summary_scores(measured, score)
    wanted = [
        ("accuracy", Quantity(test, "accuracy")),
        ("ECE", Quantity(test, "ece")),
        ("ECE with T", Quantity(test, "ece", SCALED)),
        ("T", Quantity(test, "temperature", SCALED)),
        ("NLL", Quantity(test, "nll")),
        (f"AURC by {score_name(errors_by)}", Quantity(test, "aurc", score=errors_by)),
    ]
    for place in places:
        name = place.dataset.removesuffix("/test")
        if (place.corruption, place.posthoc) == (MEAN, "none") and place.metric in ("accuracy", "ece"):
            wanted.append((f"{'ECE' if place.metric == 'ece' else 'accuracy'}, {name}", place))
        if place.metric == "auroc" and place.score in scores:
            wanted.append((f"AUROC by {score_name(place.score)}, {name}", place))
    lines = []
    for title, place in wanted:
        if place in tables[0]:
            values: list[Row | Difference | None] = [table.get(place) for table in tables]
            if len(tables) > 1:
                values.append(measured.differences.get(place))
            cells = [_shown_value(place.metric, value) if value is not None else None for value in values]
            lines.append(SummaryLine(title, place, cells))
    return lines


def describe_units(lines: Sequence[SummaryLine]) -> str:
    """Return the units of a summary in words: "in percent but for T, NLL (nats)"."""
    return units_of({line.title: line.quantity.metric for line in lines})


def score_name(score: str) -> str:
    """Return the name of a score in prose."""
    return _SCORES.get(score, score.replace("_", " "))


def _shown_value(metric: str, measured: Row | Difference) -> ShownValue:
    """Return a value or a difference, which has a sign, as it is shown."""
    better = measured.better if isinstance(measured, Difference) else None
    write = partial(unit_of(metric).write, signed=isinstance(measured, Difference), digits=4)
    low, high = measured.low, measured.high
    bounds = "" if low is None or high is None else f"{write(low)} to {write(high)}"
    return ShownValue(measured.value, write(measured.value), bounds, better)


def _summary_scores(measured: Measured, score: str | None) -> list[str]:
    """Return the scores of the summary's AUROCs: the one asked for, else entropy and MSP; the first leads the page."""
    known = {row.score for row in measured.rows[0]}
    return [score] if score in known else ["entropy", "max_probability"]


def model_names(measured: Measured) -> list[str]:
    """Return what the models are called."""
    return [printable(model.name) or "the model" for model in measured.models]


@dataclass(frozen=True)
class _ModelTables(ScriptTables):
    """The tables of one model or two: values with intervals and, of the first, its difference from the second."""

    differences: Mapping[Quantity, Difference]
    first_score: str

    def column(self, quantities: Sequence[Quantity]) -> list[Any]:
        return [self._cell(quantities, label, first=index == 0) for index, label in enumerate(self.labels)]

    def _cell(self, quantities: Sequence[Quantity], label: str, *, first: bool) -> list[Any] | None:
        """Return a `ScriptCell`, with None for the paper's number, and behind it lines to show with the value."""
        rows = [row for quantity in quantities for row in self.aggregation.rows(quantity, label)]
        if not rows or len(rows) < len(quantities):
            return None
        factor = unit_of(rows[0].metric).factor
        mean = round(factor * math.fsum(row.value for row in rows) / len(rows), 2)
        if len(rows) > 1:  # a mean over sets has no interval
            return [mean, None, 1, None, 0, 0, None, []]
        row = rows[0]
        facts = [_shown_value(row.metric, row).bounds]
        difference = self.differences.get(row.quantity)
        better = difference.better if difference is not None else None  # of the first model
        if difference is not None and first:
            mark = {True: "▲ better: ", False: "▼ worse: ", None: ""}[better]
            cell = _shown_value(row.metric, difference)
            facts.append(f"{mark}{cell.text} ({cell.bounds})" if cell.bounds else f"{mark}{cell.text}")
        verdict = {True: 1, False: -1, None: 0}[better] if first else 0
        best = int(better == first)  # the second where the first is worse
        return [mean, None, row.n, None, verdict, best, None, [*filter(None, facts)]]

    def detection(self) -> dict[str, Any]:
        """Return the cells by score, the summary's first; here the paper's choice of scores plays no part."""
        detection = super().detection()
        order = sorted(detection["scores"], key=lambda name: name != self.first_score)
        cells = {metric: {name: detection["cells"][metric][name] for name in order} for metric in DETECTION}
        chosen = {"scores": order, "paper": None, "named": None, "first": self.first_score}
        return {**detection, **chosen, "cells": cells}


def _page_data(
    measured: Measured,
    images_of: Mapping[str, GetImages],
    classes: Sequence[str],
    score: str | None,
    history: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    names = model_names(measured)
    rows = [replace(row, method=name) for name, rows in zip(names, measured.rows, strict=True) for row in rows]
    tables = _ModelTables(names, Aggregation(rows), measured.differences, _summary_scores(measured, score)[0])
    figures = []
    for model, of_model in zip(measured.models, measured.rows, strict=True):
        ood = [(model.posthoc or as_given)(predictions) for predictions in model.ood]
        versions = _versions(model, of_model)
        drawn = model_figures(
            versions, ood, scores=of_model.scores, images_of=images_of, classes=classes, equal_mass=True
        )
        figures.append([drawn])  # as of a method with one run
    setting = {**tables.data(), "mixing": [], "curves": [pooled_history([history])], **pooled_figures(figures)}
    return {**script_constants(), "equalMass": True, "settings": [setting]}


def _image_getters(images: Images, model: ModelPredictions) -> dict[str, GetImages]:
    """Return how to get at the images of each set; a sequence must have one for every prediction of its set."""
    counts = {predictions.dataset: len(predictions) for predictions in (model.test, *model.ood)}
    images_of: dict[str, GetImages] = {}
    for name, of_set in images.items():
        dataset = check_name("set in images", name or "test", counts)
        count = counts[dataset]
        if callable(of_set):
            images_of[dataset] = of_set
        elif isinstance(of_set, Sized) and len(of_set) < count:  # a torch Dataset need not tell its length
            raise ValueError(f"images of {dataset} must be those of its {count:,} predictions, got {len(of_set):,}")
        else:
            images_of[dataset] = partial(_chosen, of_set)
    return images_of


def _chosen(images: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [images[place] for place in places]


def _versions(model: ModelPredictions, rows: Sequence[Row]) -> dict[str, Predictions]:
    """Return the test predictions as they are and, where there is a temperature, with it."""
    posthoc = model.posthoc or as_given
    versions = {"none": posthoc(model.test)}  # a map needs no argument for a temperature where there is none
    for row in rows:
        if row.metric == "temperature":
            versions[SCALED] = posthoc(model.test, row.value)
    return versions


def _answers(measured: Measured, images_of: Mapping[str, GetImages], classes: Sequence[str], errors_by: str) -> Answers:
    """Return the answers of a model without a predictor: with T where there is one, at thresholds for fixed shares."""
    model = measured.models[0]
    versions = _versions(model, measured.rows[0])
    predicted = restrict_predictions(versions.get(SCALED, versions["none"]))
    top = probabilities(predicted).max(dim=1)
    assert measured.rows[0].scores is not None, "rows of measure_models have scores"
    scores = measured.rows[0].scores.test
    score = scores.get(errors_by, scores["max_probability"])
    rules = {
        f"answers {100 * share:g} % of the test images": accepting_threshold(score, share) for share in (0.95, 0.8)
    }
    return Answers(
        truth=predicted.labels,
        label=top.indices,
        sure=top.values,
        score=score,
        thresholds={**rules, EVERYTHING: math.inf},
        classes=competing_classes(model.test, classes),
        look=images_of.get(model.test.dataset),
    )


def _remarks(measured: Measured) -> Iterator[str]:
    """Yield what the intervals mean, where there are any."""
    if measured.bootstrap is None:
        return
    level, count = f"{100 * measured.bootstrap.level:g} %", f"{measured.bootstrap.resamples:,}"
    yield f"Intervals are {level} bootstrap intervals over images, {count} resamples. {BINNED_INTERVALS}"
    if len(measured.models) > 1:
        yield (
            "Both models are measured on the same resamples, so the interval of a difference is paired; one that does "
            "not hold 0 is marked ▲ or ▼. They say nothing about training again with another seed."
        )


def _summary_table(measured: Measured, lines: Sequence[SummaryLine]) -> str:
    names, caption = model_names(measured), describe_units(lines)
    caption = caption[0].upper() + caption[1:]  # not `capitalize`, which makes small letters of the names in it
    heads = ["value"]
    if len(names) > 1:
        heads = [*names, "difference"]
        caption += f"; difference: {' − '.join(names)}"
    meanings = dict(MEANINGS)
    explained = [(line, meanings.pop(line.quantity.metric, "")) for line in lines]  # where its metric comes first
    return fill("evaluation.html", "summary", caption, heads, explained, list(_remarks(measured)))


def _sources(measured: Measured, given: str) -> Iterator[tuple[str, str]]:
    """Yield the sets of every model, and where its temperature comes from. given: of one that was not fitted here."""
    for name, model, rows in zip(model_names(measured), measured.models, measured.rows, strict=True):
        sets: dict[str, Sequence[Predictions | None]] = {
            "test": [model.test],
            "validation": [model.validation],
            "train": [model.train],
            "shifted": model.shift,
            "OOD": model.ood,
        }
        facts = []
        for kind, members in sets.items():
            parts = [part for part in members if part is not None]
            if [part.dataset or kind for part in parts] == [kind]:
                facts.append(counted(len(parts[0]), f"{kind} image"))
            elif parts:
                listed = [f"{part.dataset or 'unnamed'} ({len(part):,})" for part in parts]
                facts.append(f"{kind} images: {shortened(listed, _MOST_SETS)}")
        origin = "fitted on the validation images by ECE" if model.temperature is None else given
        facts += [f"temperature {row.value:.3f}, {origin}" for row in rows if row.metric == "temperature"]
        yield name, "; ".join(facts)
