"""The leaderboard: every method of a setting by what matters, with intervals, beside what its training cost.

Detection is by one score for all methods, the maximum probability (MSP): two scores are never compared with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from regmixup.report.results import RunRecord, Setting
from regmixup.report.significance import mean_interval
from regmixup.report.tables import arrow, ood_sets, shifted_sets, tested_set
from regmixup.types import MEAN, Quantity

NEAR = {"cifar10": ("cifar100", "tiny-imagenet"), "cifar100": ("cifar10", "tiny-imagenet")}
"""Families of OOD sets that are near to a train set's family, as OpenOOD groups them; all others are far."""
SECOND_IMAGES = ("RegMixup", "RegCutMix", "Vicinal")
"""Objectives that forward `samples` more images for each clean one."""


class ValueCell(NamedTuple):
    """A value as it is shown, with its interval. better: of a difference, whether the first model is better."""

    value: float
    text: str
    bounds: str
    better: bool | None = None


@dataclass(frozen=True)
class Leaderboard:
    """A line per method: its name and a cell per column, None where nothing was measured."""

    caption: str
    heads: Sequence[str]
    lines: Mapping[str, Sequence[ValueCell | None]]


@dataclass(frozen=True)
class _Column:
    """The mean over some quantities of one metric. scale: to the unit that is shown, with so many decimals."""

    title: str
    quantities: Sequence[Quantity]
    scale: float = 100.0
    decimals: int = 2


def leaderboard(setting: Setting) -> Leaderboard:
    """Return the leaderboard of a setting, methods in the order of the study."""
    columns = _columns(setting)
    heads = [column.title + arrow(column.quantities[0].metric) for column in columns]
    lines: dict[str, list[ValueCell | None]] = {}
    for label in setting.labels:
        measured = [_measured(setting, column, label) for column in columns]
        lines[label] = [*measured, _images(setting.of(label)[0]), _minutes(setting.of(label))]
    devices = ", ".join(sorted({str(run.provenance.get("device", "?")) for run in setting.runs}))
    caption = (
        f"{setting.title}: mean over seeds, below it the 95 % interval of the mean. In percent; AUGRC in thousandths, "
        f"NLL in nats. Minutes of training as recorded, on {devices}"
    )
    return Leaderboard(caption, ["method", *heads, "images forwarded", "minutes"], lines)


def _columns(setting: Setting) -> list[_Column]:
    """Return the columns that some method has values for."""
    rows = setting.aggregation
    test = tested_set(rows)
    ood = ood_sets(rows)
    near = [name for name in ood if name.partition("/")[0] in NEAR.get(test.partition("/")[0], ())]
    far = [name for name in ood if name not in near]
    columns = [_Column("accuracy", [Quantity(test, "accuracy")])]
    columns += [_Column(f"accuracy {n}", [Quantity(n, "accuracy", corruption=MEAN)]) for n in shifted_sets(rows)]
    for title, names in (("near-OOD AUROC by MSP", near), ("far-OOD AUROC by MSP" if near else "AUROC by MSP", far)):
        if names:
            columns.append(_Column(title, [Quantity(name, "auroc", score="max_probability") for name in names]))
    columns += [
        _Column("ECE", [Quantity(test, "ece")]),
        _Column("AUGRC", [Quantity(test, "augrc", score="max_probability")], scale=1000.0),
        _Column("NLL", [Quantity(test, "nll")], scale=1.0, decimals=3),
    ]
    return [column for column in columns if any(rows.average(column.quantities, label) for label in setting.labels)]


def _measured(setting: Setting, column: _Column, label: str) -> ValueCell | None:
    values = [column.scale * value for value in setting.aggregation.average(column.quantities, label).values()]
    if not values:
        return None
    mean, bounds = sum(values) / len(values), mean_interval(values)
    shown = f"{mean:.{column.decimals}f}"
    if bounds is None:
        return ValueCell(mean, shown, "one seed")
    low, high = (f"{bound:.{column.decimals}f}".replace("-", "−") for bound in bounds)
    return ValueCell(mean, shown, f"{low} to {high}")


def _images(run: RunRecord) -> ValueCell | None:
    """Return how many images training forwarded; None where the study does not say how many train images there are."""
    if run.train_images is None:
        return None
    config = run.config
    epochs = config["epochs"] + config["cooldown_epochs"]
    count = run.train_images * epochs * config.get("members", 1) * images_per_clean_image(config["objective"])
    return ValueCell(count, f"{count / 1e6:.3g} M", "")


def images_per_clean_image(objective: Mapping[str, Any]) -> float:
    """Return how many images a step forwards for a clean one. objective: as in config.json.

    >>> images_per_clean_image({"kind": "RegMixup", "samples": 1}), images_per_clean_image({"kind": "Mixup"})
    (2.0, 1.0)
    """
    kind = objective["kind"]
    if kind == "Alternate":
        first, second = (images_per_clean_image(objective[side]) for side in ("first", "second"))
        return objective["probability"] * first + (1 - objective["probability"]) * second
    if kind == "Rotation":
        return images_per_clean_image(objective["objective"]) + (3 if objective["weight"] else 0)
    if kind in SECOND_IMAGES:
        return 1.0 + objective.get("samples", 1)
    return 3.0 if kind == "AugMix" else 1.0


def _minutes(runs: Sequence[RunRecord]) -> ValueCell:
    """Return the mean minutes that a training took."""
    minutes = sum(run.provenance["seconds"] for run in runs) / len(runs) / 60
    return ValueCell(minutes, f"{minutes:.1f}", "")
