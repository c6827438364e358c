"""Whether methods differ from the reference method by more than their seeds do."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from regmixup.methods import REFERENCE

Values = dict[int | None, float]
"""One value per seed."""


@dataclass(frozen=True)
class Comparison:
    """p: two-sided, of no difference in the mean. test: the t-test it comes from."""

    p: float
    test: Literal["paired", "welch"]


@dataclass(frozen=True)
class Design:
    """How a setting's values came about, as far as a comparison of them depends on it.

    one_temperature: methods of which one T serves several seeds. untested: methods that are never compared with the
    reference, with the reason.
    """

    one_temperature: frozenset[str] = frozenset()
    untested: Mapping[str, str] = field(default_factory=dict)


def compare_column(
    values: Mapping[str, Values], *, untested: Collection[str] = (), unpaired: Collection[str] = ()
) -> dict[str, Comparison]:
    """Compare every method of a column with the reference method; p by Holm's correction over these comparisons.

    values: for every method, what the column shows. A method that cannot be compared is left out, and does not count.
    unpaired: methods whose seed s has nothing in common with the reference's seed s.
    """
    found = {}
    for method, own in values.items():
        if method != REFERENCE and method not in untested:
            comparison = compare(own, values.get(REFERENCE, {}), paired=method not in unpaired)
            if comparison is not None:
                found[method] = comparison
    corrected = holm({method: comparison.p for method, comparison in found.items()})
    return {method: replace(comparison, p=corrected[method]) for method, comparison in found.items()}


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Holm's (1979) adjusted p: the k-th smallest of m is max over j <= k of min(1, (m - j + 1) p_(j)).

    Marking what stays below a level marks anything false with at most that probability, however many there are and
    however they depend on each other.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted: dict[str, float] = {}
    largest = 0.0
    for index, name in enumerate(sorted(chances, key=chances.__getitem__)):
        largest = max(largest, min(1.0, (len(chances) - index) * chances[name]))
        adjusted[name] = largest
    return adjusted


def compare(
    values: Mapping[int | None, float], reference: Mapping[int | None, float], *, paired: bool = True
) -> Comparison | None:
    """Compare two methods, values by seed.

    Paired where both have the same seeds: runs with one seed start from the same weights and see the images in the
    same order, and the difference of the two cancels what that does to both. With d its n values,
    t = mean(d) / (std(d) / sqrt(n)) with n - 1 degrees of freedom. Otherwise, or with paired=False, Welch's test, which
    lets the two spread differently. None with fewer than two values on a side, which say nothing about spread.

    >>> result = compare({0: 0.91, 1: 0.93, 2: 0.92}, {0: 0.90, 1: 0.91, 2: 0.91})
    >>> result.test, round(result.p, 4)
    ('paired', 0.0572)
    """
    if min(len(values), len(reference)) < 2:
        return None
    if paired and values.keys() == reference.keys() and None not in values:
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
