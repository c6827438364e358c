"""Significance: which methods of a column are best, and which differ from the reference method by more than chance.

The t-tests are written out: `scipy.stats.ttest_ind` takes 3.5 ms a call, of which a full-size report makes 6,000, and
gives nan and a warning where both sides are equal and constant.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from regmixup.methods import REFERENCE

LEVEL = 0.05
"""A difference with a smaller p is marked."""

Values = dict[int | None, float]
"""One value per seed."""


def compare_column(values: Mapping[str, Values], *, untested: Collection[str] = ()) -> dict[str, float]:
    """Return p of no difference between a method and the reference method, with Holm's correction over the column.

    values: the values of every method. A method that cannot be compared is left out, and does not count.
    """
    reference = [*values.get(REFERENCE, {}).values()]
    p_values = {}
    for method, by_seed in values.items():
        if method != REFERENCE and method not in untested and min(len(by_seed), len(reference)) > 1:
            p_values[method] = difference([*by_seed.values()], reference).p
    return holm(p_values)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return Holm's (1979) adjusted p: the k-th smallest of m is max over j <= k of min(1, (m - j + 1) p_(j)).

    Marking what stays below a level marks anything false with at most that probability, however many there are and
    however they depend on each other.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted: dict[str, float] = {}
    largest = 0.0
    for index, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - index) * p_values[name]))
        adjusted[name] = largest
    return adjusted


@dataclass(frozen=True)
class MeanDifference:
    """The difference of two means: its squared standard error, and the degrees of freedom of its t-test."""

    mean: float
    squared_error: float
    degrees: float

    @property
    def p(self) -> float:
        """Return the two-sided p of no difference; 0 or 1 where nothing spreads."""
        from scipy.special import stdtr

        if self.squared_error == 0:
            return float(self.mean == 0)
        return float(2 * stdtr(self.degrees, -abs(self.mean) / math.sqrt(self.squared_error)))

    def interval(self, level: float = 1 - LEVEL) -> tuple[float, float]:
        """Return the bounds of Student's interval around the difference; both are the difference if nothing spreads."""
        from scipy.special import stdtrit

        half = float(stdtrit(self.degrees, (1 + level) / 2)) * math.sqrt(self.squared_error)
        return self.mean - half, self.mean + half


def difference(values: Sequence[float], reference: Sequence[float]) -> MeanDifference:
    """Return the difference of two methods' means over at least two seeds each, with Welch's standard error.

    Two methods are independent trainings, also where their seeds have the same numbers (docs/conventions.md), and may
    spread differently. With variances v over n seeds, the squared error is v1 / n1 + v2 / n2.

    >>> apart = difference([0.91, 0.93, 0.92], [0.90, 0.91, 0.91])
    >>> [round(bound, 4) for bound in (apart.mean, *apart.interval())]
    [0.0133, -0.0072, 0.0338]
    """
    (mean, variance), (other_mean, other_variance) = moments(values), moments(reference)
    squares = variance / len(values), other_variance / len(reference)
    total = sum(squares)
    parts = squares[0] ** 2 / (len(values) - 1) + squares[1] ** 2 / (len(reference) - 1)
    return MeanDifference(mean - other_mean, total, total**2 / parts if parts else 1.0)


def resampled_difference(values: Sequence[float], reference: Sequence[float], *, test_share: float) -> MeanDifference:
    """Return the difference of two methods that were trained and tested on the same n resamples of one dataset.

    The train sets of resamples, such as the folds of a cross-validation, share images, so the n differences d are
    correlated, and std(d) / sqrt(n) is too small. The corrected resampled t statistic (Nadeau and Bengio, 2003) takes
    the correlation to be n_test / (n_train + n_test): the squared error is var(d) (1 / n + n_test / n_train), with
    n - 1 degrees of freedom. test_share: n_test / n_train, 1 / (k - 1) for k folds.

    >>> apart = resampled_difference([0.91, 0.93, 0.92], [0.90, 0.91, 0.91], test_share=1 / 2)
    >>> [round(bound, 4) for bound in (apart.mean, *apart.interval())]
    [0.0133, -0.0093, 0.036]
    """
    mean, variance = moments([ours - theirs for ours, theirs in zip(values, reference, strict=True)])
    return MeanDifference(mean, variance * (1 / len(values) + test_share), len(values) - 1)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return Student's interval of a mean over seeds; None for a single value, which says nothing about spread.

    >>> [round(bound, 3) for bound in mean_interval([0.90, 0.92, 0.94])]
    [0.87, 0.97]
    """
    if len(values) < 2:
        return None
    mean, variance = moments(values)
    return MeanDifference(mean, variance / len(values), len(values) - 1).interval()


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and variance (ddof = 1), which is NaN for a single value."""
    n, mean = len(values), math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / (n - 1) if n > 1 else math.nan


def best_of(values: Mapping[str, float], *, higher_is_better: bool | None) -> set[str]:
    """Return the methods with the best value, as the paper defines it ("Table entries", Section 4).

    values: as printed, so that values that read alike are tied. Nothing is best without a competitor, or in a quantity
    without a better direction (None).

    >>> sorted(best_of({"dnn": 96.14, "mixup": 97.46, "regmixup": 97.46}, higher_is_better=True))
    ['mixup', 'regmixup']
    """
    if higher_is_better is None or len(values) < 2:
        return set()
    top = max(values.values()) if higher_is_better else min(values.values())
    return {method for method, value in values.items() if value == top}
