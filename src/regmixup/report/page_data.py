"""What the page's script draws and looks up, as JSON: small, since it is drawn in the browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regmixup.methods import REFERENCE
from regmixup.report.measured import Compact, Measured, Quantity, compact
from regmixup.report.mixing import QUANTILES, mixing_figure
from regmixup.report.paper import PaperValue, paper_value_of
from regmixup.report.pooled import mean_curve, pooled_histograms, pooled_history, pooled_profile, pooled_reliability
from regmixup.report.results import Results, Setting
from regmixup.report.tables import CALIBRATION, ONE_TEMPERATURE, SCALED, Cell, aggregate, judge, paper_score
from regmixup.rows.curves import COVERAGE, FPR
from regmixup.types import MEAN, Row

MOST_SHOWN = 6
"""Methods that figures show before the reader chooses."""
MOST_OF_A_GRID = 16
"""Points of a grid that they show, whose point it is to be seen together."""
_FIRST = (REFERENCE, "mixup", "regmixup", "deep-ensemble", "sngp", "augmix")
ON_SHIFT = {
    "accuracy": ("accuracy", "none", True),
    **{title: (metric, posthoc, False) for title, (metric, posthoc) in CALIBRATION.items()},
}
"""What the table of corruptions can show: metric, posthoc, whether larger is better."""
DETECTED = {"auroc": ("AUROC", True), "aupr": ("AUPR", True), "fpr_at_tpr": ("FPR at 95 % TPR", False)}


def page_data(results: Results) -> dict[str, Any]:
    """Everything, setting by setting."""
    return {
        "fpr": [round(value, 5) for value in FPR],
        "coverage": list(COVERAGE),
        "quantiles": list(QUANTILES),
        "settings": [setting_data(setting) for setting in results.settings],
    }


def setting_data(setting: Setting) -> dict[str, Any]:
    """The data of one setting's figures and of the tables that the reader can switch."""
    cells = _Cells(setting, Measured(setting.rows))
    shown = shown_first(setting.labels)
    return {
        "name": setting.name,
        "title": setting.title,
        "methods": setting.labels,
        "shown": shown,
        "looks": [[*shown, *(name for name in setting.labels if name not in shown)].index(n) for n in setting.labels],
        "seeds": setting.seeds,
        "shift": cells.shift(),
        "fisher": cells.fisher(),
        "detection": cells.detection(),
        "calibration": cells.calibration(),
        "training": _training(setting),
        "mixing": _mixing(setting),
        **_figures(setting),
    }


def shown_first(labels: Sequence[str]) -> list[str]:
    """All methods if they are few; else the best known, and the first of the others.

    >>> shown_first(["dnn", "cutmix", "a", "b", "c", "d", "regmixup"])
    ['dnn', 'cutmix', 'a', 'b', 'c', 'regmixup']
    """
    most = MOST_OF_A_GRID if any("(" in label for label in labels) else MOST_SHOWN
    if len(labels) <= most:
        return list(labels)
    known = [label for label in _FIRST if label in labels]
    chosen = {*known, *[label for label in labels if label not in known][: most - len(known)]}
    return [label for label in labels if label in chosen]


@dataclass(frozen=True)
class _Cells:
    """Cells of the tables and curves that come from rows, as `Compact`s."""

    setting: Setting
    measured: Measured

    def column(self, quantities: Mapping[str, Sequence[Quantity]], *, higher: bool) -> list[Compact | None]:
        """For every method the mean over its quantities, compared with that of the reference method as in the tables.

        A single quantity stands beside the paper's number.
        """
        seeds = {label: self.measured.average(own, label) for label, own in quantities.items()}
        cells: dict[str, Cell | None] = {}
        for label, own in quantities.items():
            cell = aggregate([*seeds[label].values()], percent=True) if seeds[label] else None
            paper = self.paper(own[0], label) if cell is not None and len(own) == 1 else None
            cells[label] = replace(cell, paper=paper) if cell is not None else None
        scaled = any(one.posthoc == SCALED for own in quantities.values() for one in own)
        judged = judge(cells, seeds, higher_is_better=higher, design=self.setting.design, scaled=scaled)
        return [compact(cell) for cell in judged.values()]

    def every(self, quantities: Sequence[Quantity], *, higher: bool) -> list[Compact | None]:
        """The same quantities of every method."""
        return self.column(dict.fromkeys(self.setting.labels, quantities), higher=higher)

    def paper(self, quantity: Quantity, label: str) -> PaperValue | None:
        config = self.setting.of(label)[0].config
        place = {"method": label, "network": config["network"], "train_set": config["train_set"]}
        return paper_value_of(Row(**place, **quantity._asdict()))

    def corruptions(self) -> dict[str, dict[str, list[int]]]:
        """Severities by family and corruption, in the order of the rows."""
        found: dict[str, dict[str, list[int]]] = {}
        for quantity in self.measured.quantities:
            if quantity.severity is not None and quantity.corruption != MEAN:
                severities = found.setdefault(quantity.dataset, {}).setdefault(quantity.corruption, [])
                if quantity.severity not in severities:
                    severities.append(quantity.severity)
        return {family: {name: sorted(own) for name, own in names.items()} for family, names in found.items()}

    def shift(self) -> list[dict[str, Any]]:
        """For every family and metric, cells[method][corruption][severity].

        Severity 0 is the mean over severities, and the last corruption the mean over corruptions; the mean of all has a
        row of its own, which the paper has, too.
        """
        found, labels = [], self.setting.labels
        for family, corruptions in self.corruptions().items():
            severities = sorted({severity for own in corruptions.values() for severity in own})
            metrics = []
            for title, (metric, posthoc, higher) in ON_SHIFT.items():
                whole = Quantity(family, metric, posthoc, "", MEAN)
                if whole not in self.measured.quantities:
                    continue
                columns = [
                    [
                        [whole._replace(corruption=name, severity=own)
                         for name in names for own in corruptions[name] if severity in (0, own)]
                        for severity in (0, *severities)
                    ]
                    for names in (*([name] for name in corruptions), list(corruptions))
                ]  # fmt: skip
                columns[-1][0] = [whole]
                by_column = [[self.every(at, higher=higher) for at in column] for column in columns]
                cells = [[[at[index] for at in column] for column in by_column] for index in range(len(labels))]
                note = ONE_TEMPERATURE if posthoc == SCALED and self.setting.design.one_temperature else ""
                metrics.append({"title": title, "note": note, "cells": cells})
            if metrics:
                names = list(corruptions)
                found.append({"family": family, "corruptions": names, "severities": severities, "metrics": metrics})
        return found

    def fisher(self) -> list[dict[str, Any]]:
        """For every family that has it, values[method][corruption][severity]: mean and standard deviation."""
        found = []
        for family, corruptions in self.corruptions().items():
            values = [
                [
                    [
                        self.spread(Quantity(family, "fisher_criterion", corruption=name, severity=own), label)
                        for own in severities
                    ]
                    for name, severities in corruptions.items()
                ]
                for label in self.setting.labels
            ]
            if any(cell for own in values for line in own for cell in line):
                severities = max(corruptions.values(), key=len)
                names = list(corruptions)
                found.append({"family": family, "corruptions": names, "severities": severities, "values": values})
        return found

    def spread(self, quantity: Quantity, label: str) -> list[float | None]:
        """Mean and standard deviation; nothing where it was not measured."""
        own = self.measured.values(quantity, label)
        if not own:
            return []
        cell = aggregate([*own.values()], percent=False)
        return [round(cell.mean, 2), round(cell.std, 2) if cell.n > 1 else None]

    def detection(self) -> dict[str, Any]:
        """cells[metric][score][set][method]; the score "" is, for every method, the one that the paper uses for it."""
        found = [quantity for quantity in self.measured.quantities if quantity.metric in DETECTED]
        sets, scores = (list(dict.fromkeys(getattr(q, name) for q in found)) for name in ("dataset", "score"))
        labels = self.setting.labels

        def column(dataset: str, metric: str, score: str) -> list[Compact | None]:
            by = {label: [Quantity(dataset, metric, score=score or paper_score(label))] for label in labels}
            return self.column(by, higher=DETECTED[metric][1])

        return {
            "sets": sets,
            "scores": scores,
            "metrics": [{"name": name, "title": title} for name, (title, _) in DETECTED.items()],
            "paper": [paper_score(label) for label in labels],
            "cells": {m: {s: [column(name, m, s) for name in sets] for s in ("", *scores)} for m in DETECTED},
        }

    def calibration(self) -> dict[str, Any]:
        """ECE on the test set, without and with temperature."""
        found = {}
        for posthoc in ("none", SCALED):
            own = [q for q in self.measured.quantities if (q.metric, q.posthoc, q.corruption) == ("ece", posthoc, "")]
            if own:
                found[posthoc] = self.every(own[:1], higher=False)
        return found


def _training(setting: Setting) -> dict[str, Any]:
    """For every method its curves, and the mean seconds of a run."""
    return {
        "curves": [pooled_history([run.history for run in setting.of(label)]) for label in setting.labels],
        "seconds": [
            round(sum(float(run.provenance["seconds"]) for run in setting.of(label)) / len(setting.of(label)), 1)
            for label in setting.labels
        ],
    }


def _mixing(setting: Setting) -> list[dict[str, Any]]:
    """Every method that mixes pairs of images, with Beta's parameter; AugMix's alpha is of something else."""
    found = []
    for label in setting.labels:
        objective = setting.of(label)[0].config["objective"]
        if {"alpha", "lam"} <= objective.keys():
            found.append({"method": label, **mixing_figure(float(objective["alpha"]))})
    return found


def _figures(setting: Setting) -> dict[str, Any]:
    """What comes from predictions, by the position of the method; None for a method without figure data."""
    seeds = [[run.figures for run in setting.of(label) if run.figures] for label in setting.labels]
    images: list[Any] = next((own["images"] for runs in seeds for own in runs if "images" in own), [])
    return {
        "reliability": [_reliability(runs) if runs else None for runs in seeds],
        "scores": [_scores(runs) if runs else None for runs in seeds],
        "path": [
            pooled_profile([own["path"] for own in runs]) if runs and all("path" in own for own in runs) else None
            for runs in seeds
        ],
        "images": images,
    }


def _reliability(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        version: pooled_reliability([own["reliability"][version] for own in runs]) for version in runs[0]["reliability"]
    }


def _scores(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each score that all seeds have: the histogram, the ROC curves and the risk-coverage curve, in thousandths."""
    found = {}
    for score, first in runs[0]["scores"].items():
        own = [run["scores"][score] for run in runs if score in run["scores"]]
        if len(own) == len(runs):
            found[score] = {
                "histogram": pooled_histograms(own),
                "roc": {name: mean_curve([one["roc"][name] for one in own], 1000) for name in first["roc"]},
                "risk": mean_curve([one["risk"] for one in own], 1000, decimals=1),
            }
    return found
