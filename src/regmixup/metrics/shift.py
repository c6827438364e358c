"""Errors under shift relative to those of a reference model: the mean corruption error, mCE."""

from __future__ import annotations

from collections.abc import Mapping

Condition = tuple[str, int]
"""A corruption and its severity."""


def corruption_errors(errors: Mapping[Condition, float], reference: Mapping[Condition, float]) -> dict[str, float]:
    """Return CE_c = sum_s E_cs / sum_s E^ref_cs for every corruption c (Hendrycks and Dietterich, 2019).

    errors, reference: the share of wrong predictions by (corruption, severity), of the model and of the reference model
    (AlexNet for the ImageNet-C of the literature), for the same conditions.

    >>> corruption_errors({("fog", 1): 0.1, ("fog", 2): 0.2}, {("fog", 1): 0.2, ("fog", 2): 0.4})
    {'fog': 0.5}
    """
    if not errors or set(errors) != set(reference):
        only = sorted(set(errors) ^ set(reference))
        raise ValueError(f"errors and reference must cover the same conditions, at least one, only one has {only}")
    ratios = {}
    for corruption in dict.fromkeys(name for name, _ in errors):
        total, reference_total = (
            sum(error for (name, _), error in table.items() if name == corruption) for table in (errors, reference)
        )
        if not reference_total > 0:
            raise ValueError(f"reference must make errors under every corruption, got none under {corruption!r}")
        ratios[corruption] = total / reference_total
    return ratios


def mean_corruption_error(errors: Mapping[Condition, float], reference: Mapping[Condition, float]) -> float:
    """Return the mCE, the plain mean of `corruption_errors` over the corruptions; 1 is as good as the reference.

    >>> mean_corruption_error({("fog", 1): 0.1, ("snow", 1): 0.4}, {("fog", 1): 0.2, ("snow", 1): 0.2})
    1.25
    """
    ratios = corruption_errors(errors, reference)
    return sum(ratios.values()) / len(ratios)
