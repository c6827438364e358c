"""Measure one model, or two on the same images: rows of each, and the difference of every value with its interval.

Both models are measured on the same resamples of the same images, so what they share cancels in a difference: its
interval is narrower than two separate ones suggest, and two intervals that overlap may belong to models that differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from regmixup.evaluation.evaluate import ModelPredictions, measure_model
from regmixup.evaluation.rows import Rows
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.calibration import BINNED
from regmixup.types import Predictions, Quantity, Row, higher_is_better


@dataclass(frozen=True)
class Difference:
    """first - second: the value, and the bounds of its paired interval where there is one.

    better: whether the first model is better (True) or worse (False); None where the interval holds 0.
    """

    value: float
    low: float | None = None
    high: float | None = None
    better: bool | None = None


@dataclass(frozen=True)
class Measured:
    """The result of `measure_models`. models: one or two, the subject first.

    rows: those of each model; of two, `method` is the model's name. differences: subject minus the other, by quantity.
    """

    models: Sequence[ModelPredictions]
    rows: Sequence[Rows]
    bootstrap: Bootstrap | None
    differences: Mapping[Quantity, Difference] = field(default_factory=dict)


def measure_models(
    model: ModelPredictions,
    against: ModelPredictions | None = None,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    bootstrap: Bootstrap | None = Bootstrap(),  # noqa: B008 a frozen value
) -> Measured:
    """Return the rows of a model or, with `against`, of two models on the same images, and their differences.

    Both must have predicted the same images in the same order. That is checked by the data's fingerprint, where both
    files have one, and by labels. Sets of the two are matched by name, or in order where names differ; the
    other model may come without shifted, or without OOD sets, which are then not compared.
    groups, bootstrap: as `evaluate` takes them; without a bootstrap, differences have no intervals.
    """

    def measured(subject: ModelPredictions, method: str) -> Rows:
        return measure_model(subject, groups=groups, bootstrap=bootstrap, row=Row(method=method))

    if against is None:
        return Measured([model], [measured(model, "")], bootstrap)
    names = model.name, against.name
    if names[0] == names[1] or not all(names):
        names = f"{names[0]} A".strip(), f"{names[1]} B".strip()
    first = replace(model, name=names[0])
    # With its sets in the order, and under the names, of the first's; checked to be them.
    second = replace(
        against,
        name=names[1],
        test=_same_set(first.test, against.test),
        shift=_pair_up("shifted", first.shift, against.shift),
        ood=_pair_up("OOD", first.ood, against.ood),
    )
    rows = measured(first, first.name), measured(second, second.name)
    return Measured([first, second], rows, bootstrap, _differences(*rows, bootstrap))


def check_same_images(first: Predictions, second: Predictions) -> None:
    """Raise unless two predictions are, as far as they tell, of the same images in the same order.

    >>> import torch
    >>> one, two = (Predictions(torch.zeros(3, 2), torch.tensor(labels)) for labels in ([0, 1, 1], [1, 0, 1]))
    >>> check_same_images(one, two)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: the test set must be the same images in the same order for both models: 2 of 3 labels differ, ...
    """
    shapes = [tuple(predictions.logits.shape) for predictions in (first, second)]
    prints = sorted({predictions.info.get("data", "")[:12] for predictions in (first, second)} - {""})
    if shapes[0] != shapes[1]:
        reason = f"their logits are {shapes[0]} and {shapes[1]}"
    elif len(prints) > 1:
        reason = f"their data have the fingerprints {' and '.join(prints)}"
    else:
        known = (first.labels >= 0) & (second.labels >= 0)
        unequal = (known & (first.labels != second.labels)).nonzero()
        if len(unequal) == 0:
            return
        reason = f"{len(unequal):,} of {len(first):,} labels differ, the first in line {int(unequal[0])} (from 0)"
    name = first.dataset or "the test set"
    raise ValueError(f"{name} must be the same images in the same order for both models: {reason}")


def _pair_up(kind: str, first: Sequence[Predictions], second: Sequence[Predictions]) -> list[Predictions]:
    if second and len(first) != len(second):
        raise ValueError(f"both models must have the same {kind} sets, got {len(first)} and {len(second)}")
    by_name = {predictions.dataset: predictions for predictions in second}
    if by_name.keys() == {predictions.dataset for predictions in first}:
        second = [by_name[predictions.dataset] for predictions in first]
    return [_same_set(*pair) for pair in zip(first, second, strict=False)]


def _same_set(first: Predictions, second: Predictions) -> Predictions:
    check_same_images(first, second)
    return replace(second, dataset=first.dataset, role=first.role)


def _differences(first: Rows, second: Rows, bootstrap: Bootstrap | None) -> dict[Quantity, Difference]:
    """Return first - second for every quantity that both have, with the interval on the resamples that both share."""
    differences: dict[Quantity, Difference] = {}
    other_values = {row.quantity: row.value for row in second}
    for row in first:
        place, higher = row.quantity, higher_is_better(row.metric)
        if place not in other_values:
            continue
        value = row.value - other_values[place]
        differences[place] = Difference(value)
        if bootstrap is None or place not in first.resampled or place not in second.resampled:
            continue
        values = first.resampled[place] - second.resampled[place]  # on the same resamples: what both share cancels
        values = values[~values.isnan()]
        if len(values):
            about = value if row.metric in BINNED else None
            bounds = bootstrap.interval(values, about=about, least=-math.inf)
            apart = bounds.low > 0 or bounds.high < 0
            better = (value > 0) == higher if apart and higher is not None else None
            differences[place] = Difference(value, bounds.low, bounds.high, better)
    return differences
