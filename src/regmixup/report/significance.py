"""Whether two methods differ by more than their seeds do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Comparison:
    """p: two-sided, of no difference in the mean. test: the t-test it comes from."""

    p: float
    test: Literal["paired", "welch"]


def compare(values: Mapping[int | None, float], reference: Mapping[int | None, float]) -> Comparison | None:
    """Compare two methods, values by seed.

    Paired where both have the same seeds: runs with one seed start from the same weights and see the images in the
    same order, and the difference of the two cancels what that does to both. With d its n values,
    t = mean(d) / (std(d) / sqrt(n)) with n - 1 degrees of freedom. Otherwise Welch's test, which lets the two spread
    differently. None with fewer than two values on a side, which say nothing about spread.

    >>> result = compare({0: 0.91, 1: 0.93, 2: 0.92}, {0: 0.90, 1: 0.91, 2: 0.91})
    >>> result.test, round(result.p, 4)
    ('paired', 0.0572)
    """
    if min(len(values), len(reference)) < 2:
        return None
    if values.keys() == reference.keys() and None not in values:
        mean, variance = _moments([values[seed] - reference[seed] for seed in values])
        n = len(values)
        return Comparison(_two_sided(mean, variance / n, n - 1), "paired")
    (mean, variance), (other_mean, other_variance) = _moments([*values.values()]), _moments([*reference.values()])
    squares = variance / len(values), other_variance / len(reference)
    total = sum(squares)
    parts = squares[0] ** 2 / (len(values) - 1) + squares[1] ** 2 / (len(reference) - 1)
    return Comparison(_two_sided(mean - other_mean, total, total**2 / parts if parts else 1.0), "welch")


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and variance (ddof = 1)."""
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _two_sided(difference: float, squared_error: float, degrees: float) -> float:
    """The p of a t statistic; 0 or 1 where nothing spreads."""
    from scipy.special import stdtr

    if squared_error == 0:
        return float(difference == 0)
    return float(2 * stdtr(degrees, -abs(difference) / math.sqrt(squared_error)))
