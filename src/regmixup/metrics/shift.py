"""Errors under shift relative to those of a reference model: the mean corruption error, mCE."""

from __future__ import annotations

from collections.abc import Mapping

Condition = tuple[str, int]
"""A corruption and its severity."""


def mean_corruption_error(errors: Mapping[Condition, float], reference: Mapping[Condition, float]) -> float:
    """Return the mCE, the mean over corruptions c of sum_s E_cs / sum_s E^ref_cs (Hendrycks and Dietterich, 2019).

    errors, reference: the share of wrong predictions by (corruption, severity), of the model and of the reference model
    (AlexNet for the ImageNet-C of the literature), for the same conditions. 1 is as good as the reference.

    >>> mean_corruption_error({("fog", 1): 0.1, ("snow", 1): 0.4}, {("fog", 1): 0.2, ("snow", 1): 0.2})
    1.25
    """
    if not errors or set(errors) != set(reference):
        only = sorted(set(errors) ^ set(reference))
        raise ValueError(f"errors and reference must cover the same conditions, at least one, only one has {only}")
    totals, reference_totals = (
        {corruption: sum(table[key] for key in table if key[0] == corruption) for corruption, _ in table}
        for table in (errors, reference)
    )
    if not min(reference_totals.values()) > 0:
        none = [corruption for corruption, total in reference_totals.items() if not total > 0]
        raise ValueError(f"reference must make errors under every corruption, got none under {none[0]!r}")
    return sum(total / reference_totals[corruption] for corruption, total in totals.items()) / len(totals)
