"""The sentences of the page's section "In short": what the tests of the tables show, section by section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from regmixup.methods import REFERENCE
from regmixup.report.aggregation import SCALED, Aggregation, Cell
from regmixup.report.results import Results, Setting
from regmixup.report.tables import shifted_sets, tested_set
from regmixup.types import MEAN, Quantity, Row, higher_is_better

PERCENT = "\N{NO-BREAK SPACE}%"
_MOST_NAMED = 4


def conclusions(results: Results, data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a section's name and one sentence of what its numbers show. data: of the page's script."""
    several = len(results.settings) > 1
    for setting, drawn in zip(results.settings, data["settings"], strict=True):
        for name, text in _setting_conclusions(setting, drawn):
            if text:
                yield name, f"{setting.title}: {text}" if several else text


def _setting_conclusions(setting: Setting, drawn: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rows = setting.aggregation
    test = tested_set(rows)

    def said(title: str, quantity: Quantity, *, percent: bool = True) -> str:
        cells = rows.column([quantity], labels=setting.labels, percent=percent)
        return conclude(title, quantity.metric, cells, unit=PERCENT if percent else "")

    yield "results", said("Accuracy on the test set", Quantity(test, "accuracy"))
    entropy = Aggregation(_half_way(setting), setting.design).column([Quantity("", "entropy")], percent=False)
    yield "profiles", conclude("Entropy half-way between two images", "entropy", entropy, unit=" nats")
    densities = {density["method"]: density["densest"] for density in drawn["mixing"]}
    mixing = "; ".join(f"{method} draws 80 % of its λ {_ranges(dense)}" for method, dense in densities.items())
    yield "mixing", f"{mixing}." if mixing else ""
    for name in shifted_sets(rows):
        yield "shift", said(f"Accuracy on {name}", Quantity(name, "accuracy", corruption=MEAN))
    for name in drawn["detection"]["sets"]:
        title = f"AUROC of {name.removesuffix('/test')} by each method's own score"
        yield "detection", said(title, Quantity(name, "auroc"))
    yield "calibration", said("ECE as trained", Quantity(test, "ece"))
    yield "calibration", said("ECE with T", Quantity(test, "ece", SCALED))
    yield "selective", said("The area under risk against coverage by MSP", Quantity(test, "aurc"))
    fisher = Quantity(test, "fisher_criterion")
    yield "fisher", said("The Fisher criterion on the test set", fisher, percent=False)
    methods, seconds = drawn["methods"], drawn["training"]["seconds"]
    if len(methods) > 1 and seconds[0]:
        slowest = max(range(len(methods)), key=seconds.__getitem__)
        times = f", {seconds[slowest] / seconds[0]:.2f} times as long as {methods[0]}" if slowest else ""
        yield "training", f"{methods[slowest]} takes longest to train{times}."


def _half_way(setting: Setting) -> Iterator[Row]:
    """Yield the mean entropy half-way between two images of every run, for the methods whose runs all have it."""
    for label in setting.labels:
        curves = [run.figures.get("path", {}).get("mean") for run in setting.of(label)]
        if all(curves):
            for run, curve in zip(setting.of(label), curves, strict=True):
                yield Row(method=label, seed=run.seed, metric="entropy", value=curve[len(curve) // 2])


def _ranges(intervals: Sequence[Sequence[float]]) -> str:
    if len(intervals) == 1:
        return "from {:.2f} to {:.2f}".format(*intervals[0])
    return f"below {intervals[0][1]:.2f} or above {intervals[1][0]:.2f}"


def conclude(title: str, metric: str, cells: Mapping[str, Cell | None], *, unit: str = PERCENT) -> str:
    r"""Say in one sentence what the tests of a column show: the best value, and who differs from the reference method.

    title: of what the column measures, as the beginning of a sentence; metric: its name in rows. Return "" where there
    is nothing to compare.

    >>> from regmixup.report.significance import Comparison
    >>> ours = Cell(0.95, 0.01, 5, True, against=Comparison(0.01), better=True)
    >>> conclude("Accuracy", "accuracy", {"dnn": Cell(0.93, 0.01, 5, True), "ours": ours})
    'Accuracy is highest for ours, 95.00\xa0%; higher than dnn: ours.'
    """
    known = {label: cell for label, cell in cells.items() if cell is not None}
    if len(known) < 2:
        return ""
    higher = higher_is_better(metric)
    top = (max if higher else min)(known, key=lambda label: known[label].mean)
    start = f"{title} is {'highest' if higher else 'lowest'} for {top}, {known[top].shown}{unit}"
    tested = {label: cell for label, cell in known.items() if cell.against is not None}
    if not tested:
        return f"{start}; whether that is chance cannot be tested (it needs two seeds of each, and {REFERENCE})."
    words = {True: "higher than", False: "lower than", None: "not shown to differ from"}
    groups: dict[bool | None, list[str]] = {larger: [] for larger in words}
    for label, cell in tested.items():
        groups[None if cell.better is None else cell.better == higher].append(label)
    parts = [f"{words[larger]} {REFERENCE}: {_named(labels)}" for larger, labels in groups.items() if labels]
    return f"{start}; {'; '.join(parts)}."


def _named(labels: Sequence[str]) -> str:
    """
    >>> _named(["a", "b"]), _named([*"abcdef"])
    ('a and b', 'a, b, c, d and 2 others')
    """
    if len(labels) > _MOST_NAMED + 1:
        labels = [*labels[:_MOST_NAMED], f"{len(labels) - _MOST_NAMED} others"]
    return " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))
