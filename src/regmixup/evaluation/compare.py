"""Measure one model, or two on the same images: rows of each, and the difference of every value with its interval.

Both models are measured on the same resamples of the same images, so what they share cancels in a difference: its
interval is narrower than two separate ones suggest, and two intervals that overlap may belong to models that differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from regmixup.evaluation.evaluate import evaluate
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.registry import BINNED
from regmixup.posthoc import FittedPosthoc
from regmixup.posthoc.base import FitOn
from regmixup.predictions.store import load
from regmixup.types import Predictions, Quantity, Row, higher_is_better

Given = Predictions | str | Path
"""Predictions in memory, or the file that holds them."""
PLAIN = ("nll", "brier", "temperature", "prior_variance", "fisher_criterion")
"""Metrics that are not fractions, and so not shown in percent."""


@dataclass(frozen=True, kw_only=True)
class ModelPredictions:
    """The predictions of one model for all its sets, each in memory or a file.

    test: in-distribution, with labels. name: how the model is called; by default as its file.
    validation, train, shift, ood, posthoc, temperature: as `evaluate` takes them.
    """

    test: Given
    name: str = ""
    validation: Given | None = None
    train: Given | None = None
    shift: Sequence[Given] = ()
    ood: Sequence[Given] = ()
    posthoc: FittedPosthoc | None = None
    temperature: float | None = None

    def loaded(self) -> LoadedModel:
        file = Path(self.test) if not isinstance(self.test, Predictions) else None
        return LoadedModel(
            name=self.name or (file.stem if file is not None else ""),
            file=file,
            test=_read(self.test),
            validation=_read(self.validation) if self.validation is not None else None,
            train=_read(self.train) if self.train is not None else None,
            shift=tuple(map(_read, self.shift)),
            ood=tuple(map(_read, self.ood)),
            posthoc=self.posthoc,
            temperature=self.temperature,
        )


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """`ModelPredictions` in memory. file: of the test predictions, where they come from one."""

    name: str
    file: Path | None = None
    test: Predictions
    validation: Predictions | None = None
    train: Predictions | None = None
    shift: tuple[Predictions, ...] = ()
    ood: tuple[Predictions, ...] = ()
    posthoc: FittedPosthoc | None = None
    temperature: float | None = None


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
    """What `measure_models` found. models: one or two, the subject first.

    rows: those of each model; of two, `method` is the model's name. differences: subject minus the other, by quantity.
    """

    models: Sequence[LoadedModel]
    rows: Sequence[Sequence[Row]]
    bootstrap: Bootstrap | None
    differences: Mapping[Quantity, Difference] = field(default_factory=dict)


def measure_models(
    model: ModelPredictions,
    against: ModelPredictions | None = None,
    *,
    bootstrap: Bootstrap | None = Bootstrap(),  # noqa: B008 a frozen value
    fit_on: FitOn = "validation",
) -> Measured:
    """Return the rows of a model or, with `against`, of two models on the same images, and their differences.

    Both must have predicted the same images in the same order. That is checked by the data's fingerprint and by `ids`
    where both files have them, and by labels. Sets of the two are matched by name, or in order where names differ; the
    other model may come without shifted, or without OOD sets, which are then not compared.
    bootstrap, fit_on: as `evaluate` takes them; without a bootstrap, differences have no intervals.
    """

    def rows_of(one: LoadedModel, method: str, resampled: dict[Quantity, Tensor] | None) -> list[Row]:
        return evaluate(
            one.test,
            validation=one.validation,
            train=one.train,
            shift=one.shift,
            ood=one.ood,
            posthoc=one.posthoc,
            temperature=one.temperature,
            bootstrap=bootstrap,
            fit_on=fit_on,
            row=Row(method=method),
            resampled=resampled,
        )

    first = model.loaded()
    if against is None:
        return Measured([first], [rows_of(first, "", None)], bootstrap)
    first, second = _named_apart(first, against.loaded())
    # With its sets in the order, and under the names, of the first's; checked to be them.
    second = replace(
        second,
        test=_same_set(first.test, second.test),
        shift=_pair_up("shifted", first.shift, second.shift),
        ood=_pair_up("OOD", first.ood, second.ood),
    )
    own_values: dict[Quantity, Tensor] = {}
    other_values: dict[Quantity, Tensor] = {}
    own, other = rows_of(first, first.name, own_values), rows_of(second, second.name, other_values)
    found = _differences(own, other, own_values, other_values, bootstrap)
    return Measured([first, second], [own, other], bootstrap, found)


def check_same_images(first: Predictions, second: Predictions) -> None:
    """Raise unless two predictions are, as far as they tell, of the same images in the same order.

    >>> import torch
    >>> one, two = (Predictions(torch.zeros(3, 2), torch.tensor(labels)) for labels in ([0, 1, 1], [1, 0, 1]))
    >>> check_same_images(one, two)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: the test set must be the same images in the same order for both models: 2 of 3 labels differ, ...
    """

    def refuse(reason: str) -> None:
        name = first.dataset or "the test set"
        raise ValueError(f"{name} must be the same images in the same order for both models: {reason}")

    if len(first) != len(second):
        refuse(f"there are {len(first):,} of one and {len(second):,} of the other")
    if first.logits.shape[1] != second.logits.shape[1]:
        refuse(f"one model tells {first.logits.shape[1]} classes, the other {second.logits.shape[1]}")
    prints = [one.info.get("data") for one in (first, second)]
    if None not in prints and prints[0] != prints[1]:
        refuse(f"their data have the fingerprints {str(prints[0])[:12]} and {str(prints[1])[:12]}")
    own, other = (dict(entry.split(":") for entry in one.info.get("ids", "").split()) for one in (first, second))
    for column in own.keys() & other.keys():
        if own[column] != other[column]:
            refuse(f"their columns {column!r} differ; sort both files by it")
    known = (first.labels >= 0) & (second.labels >= 0)
    if bool((unequal := known & (first.labels != second.labels)).any()):
        place = int(unequal.int().argmax())
        refuse(
            f"{int(unequal.sum()):,} of {len(first):,} labels differ, the first in row {place} (counted from 0), "
            f"{int(first.labels[place])} and {int(second.labels[place])}"
        )


def _read(given: Given) -> Predictions:
    return given if isinstance(given, Predictions) else load(given)


def names_of(first: Path, second: Path) -> tuple[str, str]:
    """Return names by which two files can be told apart: the innermost parts of their paths that differ.

    Folders of runs go without their fingerprint where that is enough.

    >>> names_of(Path("mine.npz"), Path("theirs.npz")), names_of(Path("runs/a/test.npz"), Path("runs/b/test.npz"))
    (('mine', 'theirs'), ('a', 'b'))
    """
    pairs = zip(reversed(first.absolute().parts), reversed(second.absolute().parts), strict=False)
    one, two = next(((own, other) for own, other in pairs if own != other), (first.name, second.name))
    if (one, two) == (first.name, second.name):
        return first.stem, second.stem
    plain = re.sub(r"-[0-9a-f]{12}$", "", one), re.sub(r"-[0-9a-f]{12}$", "", two)
    return plain if plain[0] != plain[1] else (one, two)


def _named_apart(first: LoadedModel, second: LoadedModel) -> tuple[LoadedModel, LoadedModel]:
    """Give models of one name, or of none, names by which they can be told apart."""
    names = first.name, second.name
    if names[0] == names[1] and first.file is not None and second.file is not None:
        names = names_of(first.file, second.file)
    if names[0] == names[1] or not all(names):
        names = f"{names[0]} A".strip(), f"{names[1]} B".strip()
    return replace(first, name=names[0]), replace(second, name=names[1])


def _pair_up(kind: str, own: Sequence[Predictions], other: Sequence[Predictions]) -> tuple[Predictions, ...]:
    if not other:
        return ()
    if len(own) != len(other):
        raise ValueError(f"both models must have the same {kind} sets, got {len(own)} and {len(other)}")
    by_name = {one.dataset: one for one in other}
    if by_name.keys() == {one.dataset for one in own}:
        other = [by_name[one.dataset] for one in own]
    return tuple(_same_set(*pair) for pair in zip(own, other, strict=True))


def _same_set(own: Predictions, other: Predictions) -> Predictions:
    check_same_images(own, other)
    return replace(other, dataset=own.dataset, role=own.role)


def _differences(
    own: Sequence[Row],
    other: Sequence[Row],
    own_values: Mapping[Quantity, Tensor],
    other_values: Mapping[Quantity, Tensor],
    bootstrap: Bootstrap | None,
) -> dict[Quantity, Difference]:
    """Return first - second for every quantity that both have, with the interval on the resamples that both share."""
    found: dict[Quantity, Difference] = {}
    theirs = {row.quantity: row.value for row in other}
    for row in own:
        place = row.quantity
        if place not in theirs:
            continue
        value = row.value - theirs[place]
        found[place] = Difference(value)
        if bootstrap is not None and place in own_values and place in other_values:
            pair = own_values[place], other_values[place]
            if bool((pair[0] - pair[1]).isnan().all()):
                continue
            bounds = bootstrap.difference(*pair, about=value if row.metric in BINNED else None)
            apart = bounds.low > 0 or bounds.high < 0
            higher = higher_is_better(row.metric)
            better = (value > 0) == higher if apart and higher is not None else None
            found[place] = Difference(value, bounds.low, bounds.high, better)
    return found
