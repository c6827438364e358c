"""Significance: which methods of a column are best, and which differ from the reference method by more than chance.

The t-tests are written out instead of taken from scipy.stats: its `ttest_rel` and `ttest_ind` take 60 and 110 times as
long (2 and 3.5 ms a call; a full-size report makes 6,000), and give nan and a warning where both sides are equal and
constant. A test compares the two to 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regmixup.methods import REFERENCE

LEVEL = 0.05
"""A difference with a smaller p is marked."""

Values = dict[int | None, float]
"""One value per seed."""


@dataclass(frozen=True)
class Comparison:
    """p: two-sided, of no difference in the mean, by Welch's t-test."""

    p: float


@dataclass(frozen=True)
class Design:
    """The comparisons that the values of a setting allow.

    one_temperature: methods with one T for several seeds. untested: methods that are never compared with the
    reference, with the reason.
    """

    one_temperature: frozenset[str] = frozenset()
    untested: Mapping[str, str] = field(default_factory=dict)


def compare_column(values: Mapping[str, Values], *, untested: Collection[str] = ()) -> dict[str, Comparison]:
    """Compare every method of a column with the reference method; p has Holm's correction over these comparisons.

    values: the values of every method. A method that cannot be compared is left out, and does not count.
    """
    differences = {}
    for method, by_seed in values.items():
        if method != REFERENCE and method not in untested:
            apart = difference(by_seed, values.get(REFERENCE, {}))
            if apart is not None:
                differences[method] = apart
    corrected = holm({method: apart.p for method, apart in differences.items()})
    return {method: Comparison(p) for method, p in corrected.items()}


def holm(chances: Mapping[str, float]) -> dict[str, float]:
    """Return Holm's (1979) adjusted p: the k-th smallest of m is max over j <= k of min(1, (m - j + 1) p_(j)).

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


@dataclass(frozen=True)
class Difference:
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


def difference(values: Mapping[int | None, float], reference: Mapping[int | None, float]) -> Difference | None:
    """Return the difference of two methods' means, values by seed, with Welch's standard error.

    Two methods are independent trainings, also where their seeds have the same numbers (docs/conventions.md), and may
    spread differently. With variances v over n seeds, the squared error is v1 / n1 + v2 / n2. None with fewer than two
    values on a side, which say nothing about spread.

    >>> found = difference({0: 0.91, 1: 0.93, 2: 0.92}, {0: 0.90, 1: 0.91, 2: 0.91})
    >>> [round(bound, 4) for bound in (found.mean, *found.interval())]
    [0.0133, -0.0072, 0.0338]
    """
    if min(len(values), len(reference)) < 2:
        return None
    (mean, variance), (other_mean, other_variance) = moments([*values.values()]), moments([*reference.values()])
    squares = variance / len(values), other_variance / len(reference)
    total = sum(squares)
    parts = squares[0] ** 2 / (len(values) - 1) + squares[1] ** 2 / (len(reference) - 1)
    return Difference(mean - other_mean, total, total**2 / parts if parts else 1.0)


def resampled_difference(values: Sequence[float], reference: Sequence[float], *, test_share: float) -> Difference:
    """Return the difference of two methods that were trained and tested on the same n resamples of one dataset.

    The train sets of resamples, such as the folds of a cross-validation, share images, so the n differences d are
    correlated, and std(d) / sqrt(n) is too small. The corrected resampled t statistic (Nadeau and Bengio, 2003) takes
    the correlation to be n_test / (n_train + n_test): the squared error is var(d) (1 / n + n_test / n_train), with
    n - 1 degrees of freedom. test_share: n_test / n_train, 1 / (k - 1) for k folds.

    >>> found = resampled_difference([0.91, 0.93, 0.92], [0.90, 0.91, 0.91], test_share=1 / 2)
    >>> [round(bound, 4) for bound in (found.mean, *found.interval())]
    [0.0133, -0.0093, 0.036]
    """
    mean, variance = moments([ours - theirs for ours, theirs in zip(values, reference, strict=True)])
    return Difference(mean, variance * (1 / len(values) + test_share), len(values) - 1)


def mean_interval(values: Sequence[float], level: float = 1 - LEVEL) -> tuple[float, float] | None:
    """Return Student's interval of a mean over seeds; None for a single value, which says nothing about spread.

    >>> [round(bound, 3) for bound in mean_interval([0.90, 0.92, 0.94])]
    [0.87, 0.97]
    """
    if len(values) < 2:
        return None
    mean, variance = moments(values)
    return Difference(mean, variance / len(values), len(values) - 1).interval(level)


def moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and variance (ddof = 1), which is NaN for a single value."""
    n, mean = len(values), math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / (n - 1) if n > 1 else math.nan


class Marks(NamedTuple):
    """bold: best single model. underline: best of all, ensembles included; not used where there is no ensemble."""

    bold: bool = False
    underline: bool = False


def find_best(
    values: Sequence[float | None], ensembles: Sequence[bool], *, higher_is_better: bool | None
) -> list[Marks]:
    """Mark the best values of a column, as the paper defines them ("Table entries", Section 4).

    values: as printed, so that values that read alike are tied, and all marked; None does not compete.
    ensembles: which of them are ensembles. higher_is_better: None for a quantity without a better direction.
    A value without a competitor is not best.

    >>> find_best([97.46, 96.14, 97.46], [False] * 3, higher_is_better=True)[2]
    Marks(bold=True, underline=False)
    >>> [m.underline for m in find_best([1.5, 0.9, 0.8], [False, False, True], higher_is_better=False)]
    [False, False, True]
    """
    if higher_is_better is None:
        return [Marks()] * len(values)
    top = max if higher_is_better else min
    competing = [number for number in values if number is not None]
    pairs = zip(values, ensembles, strict=True)
    singles = [number for number, is_ensemble in pairs if number is not None and not is_ensemble]
    best_single = top(singles) if len(singles) > 1 else None
    best_overall = top(competing) if len(competing) > max(1, len(singles)) else None
    marks = []
    for number, is_ensemble in zip(values, ensembles, strict=True):
        bold = number is not None and not is_ensemble and number == best_single
        marks.append(Marks(bold, number is not None and number == best_overall))
    return marks
