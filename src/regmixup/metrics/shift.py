"""Errors under shift relative to a reference model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from regmixup.types import Row

Condition = tuple[str, int]


def corruption_errors(errors: Mapping[Condition, float], reference: Mapping[Condition, float]) -> dict[str, float]:
    """CE_c = sum_s E_cs / sum_s E^ref_cs for every corruption c (Hendrycks and Dietterich, 2019).

    errors, reference: the share of wrong predictions by (corruption, severity), of the model and of the reference model
    (AlexNet for the ImageNet-C of the literature), for the same conditions.

    >>> corruption_errors({("fog", 1): 0.1, ("fog", 2): 0.2}, {("fog", 1): 0.2, ("fog", 2): 0.4})
    {'fog': 0.5}
    """
    if not errors:
        raise ValueError("errors must hold at least one (corruption, severity), got none")
    unmatched = set(errors) ^ set(reference)
    if unmatched:
        raise ValueError(f"errors and reference must cover the same conditions, only one has {sorted(unmatched)}")
    found = {}
    for corruption in dict.fromkeys(name for name, _ in errors):
        own = [value for (name, _), value in errors.items() if name == corruption]
        theirs = [value for (name, _), value in reference.items() if name == corruption]
        if not sum(theirs) > 0:
            raise ValueError(f"reference must make errors under every corruption, got none under {corruption!r}")
        found[corruption] = sum(own) / sum(theirs)
    return found


def mean_corruption_error(errors: Mapping[Condition, float], reference: Mapping[Condition, float]) -> float:
    """mCE: the plain mean of `corruption_errors` over the corruptions; 1 is as good as the reference.

    >>> mean_corruption_error({("fog", 1): 0.1, ("snow", 1): 0.4}, {("fog", 1): 0.2, ("snow", 1): 0.2})
    1.25
    """
    found = corruption_errors(errors, reference)
    return sum(found.values()) / len(found)


class _Source(NamedTuple):
    """What a row was measured on, and of which run."""

    method: str
    network: str
    train_set: str
    seed: int | None
    dataset: str
    posthoc: str


def relative_rows(rows: Iterable[Row], *, reference: str) -> list[Row]:
    """mCE rows of every method, network, train set and seed relative to the `reference` method of the same three.

    rows: with accuracies per (corruption, severity). Where the reference is missing, was measured under other
    conditions or makes no error under some corruption, there is no mCE.
    """
    errors: dict[_Source, dict[Condition, float]] = {}
    templates: dict[_Source, Row] = {}
    for row in rows:
        if row.metric == "accuracy" and row.severity is not None:
            key = _Source(row.method, row.network, row.train_set, row.seed, row.dataset, row.posthoc)
            errors.setdefault(key, {})[row.corruption, row.severity] = 1 - row.value
            templates.setdefault(key, row)
    found = []
    for key, own in errors.items():
        theirs = errors.get(key._replace(method=reference), {})
        corruptions = {corruption for corruption, _ in own}
        if set(own) == set(theirs) and all(any(theirs[c] > 0 for c in theirs if c[0] == name) for name in corruptions):
            found.append(
                replace(
                    templates[key],
                    corruption="mean",
                    severity=None,
                    metric=f"mce_relative_to_{reference}",
                    value=mean_corruption_error(own, theirs),
                    low=None,
                    high=None,
                    n=None,
                )
            )
    return found
