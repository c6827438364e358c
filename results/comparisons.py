"""The one rule for differences: Welch between trainings, paired within a network, Holm within a named family.

Two methods are trainings with seeds of their own, so their difference has Welch's interval. Two scores, or two sets of
batch-norm statistics, of the same networks are paired by seed. docs/conventions.md states the rule once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from archives import Setting, load
from scipy import stats

from regmixup.names import signed
from regmixup.report.significance import holm

LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """The mean over seeds of one quantity, with Student's interval and the standard deviation where n > 1."""

    value: float
    std: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Difference:
    """A difference of means with its interval and two-sided p; None with fewer than two seeds on a side."""

    value: float
    low: float | None
    high: float | None
    p: float | None
    n: tuple[int, int]

    @property
    def sign(self) -> int:
        """Return 1 or -1 where the whole interval lies on one side of 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def text(self, digits: int = 2) -> str:
        """Return the difference with its interval, or in brackets where there is none."""
        if self.low is None or self.high is None:
            return f"({signed(self.value, digits)})"
        return f"{signed(self.value, digits)} [{signed(self.low, digits)}, {signed(self.high, digits)}]"


def mean_of(setting: Setting, quantity: str, *, study: str = "*") -> Mean | None:
    """Return the mean of a quantity over the seeds of a setting; None where it was not measured. study: see `load`."""
    values = list(load(study).get(setting, {}).get(quantity, {}).values())
    if not values:
        return None
    if len(values) == 1:
        return Mean(values[0], None, None, None, 1)
    spread = stdev(values)
    reach = stats.t.ppf(0.5 + LEVEL / 2, len(values) - 1) * spread / math.sqrt(len(values))
    return Mean(fmean(values), spread, fmean(values) - reach, fmean(values) + reach, len(values))


def welch(setting: Setting, reference: Setting, quantity: str, *, study: str = "*") -> Difference | None:
    """Return the difference of two trainings; None where one of them was not measured. study: see `load`."""
    ours, theirs = (list(load(study).get(side, {}).get(quantity, {}).values()) for side in (setting, reference))
    if not ours or not theirs:
        return None
    value, counts = fmean(ours) - fmean(theirs), (len(ours), len(theirs))
    if min(counts) < 2:
        return Difference(value, None, None, None, counts)
    test = stats.ttest_ind(ours, theirs, equal_var=False)
    low, high = test.confidence_interval(LEVEL)
    return Difference(value, float(low), float(high), float(test.pvalue), counts)


def welch_with_holm(
    setting: Setting, reference: Setting, quantities: Sequence[str], *, study: str = "*"
) -> dict[str, tuple[Difference, float]]:
    """Return the differences of two trainings, each with its p after Holm's correction over all these quantities.

    A quantity that was not measured for both is left out; without an interval, p is 1. study: see `load`, "*" for all:
    a confirmation on fresh seeds must name its own.
    """
    differences = {quantity: welch(setting, reference, quantity, study=study) for quantity in quantities}
    measured = {quantity: one for quantity, one in differences.items() if one is not None}
    corrected = holm({quantity: one.p for quantity, one in measured.items() if one.p is not None})
    return {quantity: (one, corrected.get(quantity, 1.0)) for quantity, one in measured.items()}


def paired(setting: Setting, quantity: str, reference: Setting, other_quantity: str) -> Difference | None:
    """Return the difference of two numbers of the same networks, paired by seed."""
    ours, theirs = load()[setting].get(quantity, {}), load()[reference].get(other_quantity, {})
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < 2:
        return None
    gaps = [ours[seed] - theirs[seed] for seed in seeds]
    test = stats.ttest_1samp(gaps, 0.0)
    low, high = test.confidence_interval(LEVEL)
    return Difference(fmean(gaps), float(low), float(high), float(test.pvalue), (len(seeds), len(seeds)))
