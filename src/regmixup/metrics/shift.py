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
    ratios = []
    for corruption in dict.fromkeys(corruption for corruption, _ in errors):
        severities = [condition for condition in errors if condition[0] == corruption]
        reference_error = sum(reference[condition] for condition in severities)
        if not reference_error > 0:
            raise ValueError(f"reference must make errors under every corruption, got none under {corruption!r}")
        ratios.append(sum(errors[condition] for condition in severities) / reference_error)
    return sum(ratios) / len(ratios)
