"""The one rule for differences: Welch between trainings, paired within a network, Holm within a named family.

Two methods are trainings with seeds of their own, so their difference has Welch's interval. Two scores, or two sets of
batch-norm statistics, of the same networks are paired by seed. docs/conventions.md states the rule once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from archives import Setting, load

from regmixup.names import signed
from regmixup.report import significance


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
    """A difference of means with its interval and two-sided p; None with fewer than two seeds on a side.

    n: the seeds of both trainings, or of the networks that are compared with themselves.
    """

    value: float
    low: float | None
    high: float | None
    p: float | None
    n: tuple[int, ...]

    def text(self, digits: int = 2) -> str:
        """Return the difference with its interval, or in brackets where there is none."""
        if self.low is None or self.high is None:
            return f"({signed(self.value, digits)})"
        return f"{signed(self.value, digits)} [{signed(self.low, digits)}, {signed(self.high, digits)}]"


def mean_of(setting: Setting, quantity: str) -> Mean:
    """Return the mean of a quantity over the seeds of a setting."""
    values = [*load()[setting][quantity].values()]
    bounds = significance.mean_interval(values)
    if bounds is None:
        return Mean(values[0], None, None, None, 1)
    return Mean(fmean(values), stdev(values), *bounds, len(values))


def welch(setting: Setting, reference: Setting, quantity: str, *, study: str = "*") -> Difference | None:
    """Return the difference of two trainings; None where one of them was not measured. study: see `load`."""
    ours, theirs = ([*load(study).get(side, {}).get(quantity, {}).values()] for side in (setting, reference))
    if not ours or not theirs:
        return None
    counts = len(ours), len(theirs)
    if min(counts) < 2:
        return Difference(fmean(ours) - fmean(theirs), None, None, None, counts)
    return _tested(significance.difference(ours, theirs), counts)


def with_holm(differences: Mapping[str, Difference | None]) -> dict[str, tuple[Difference, float]]:
    """Return the differences that were measured, each with its p after Holm's correction over all of them.

    Without an interval, p is 1.
    """
    measured = {name: difference for name, difference in differences.items() if difference is not None}
    corrected = significance.holm({name: tested.p for name, tested in measured.items() if tested.p is not None})
    return {name: (difference, corrected.get(name, 1.0)) for name, difference in measured.items()}


def paired(setting: Setting, reference: Setting, quantity: str, reference_quantity: str = "") -> Difference | None:
    """Return the difference of two numbers of the same networks, paired by seed; None with fewer than two seeds.

    reference_quantity: default, the same quantity under the other statistics of batch norm.
    """
    ours, theirs = load()[setting][quantity], load()[reference][reference_quantity or quantity]
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < 2:
        return None
    sides = ([side[seed] for seed in seeds] for side in (ours, theirs))
    # Without a share of test images there is nothing to correct: the plain paired t-test.
    return _tested(significance.resampled_difference(*sides, test_share=0.0), (len(seeds),))


def _tested(difference: significance.Difference, counts: tuple[int, ...]) -> Difference:
    return Difference(difference.mean, *difference.interval(), difference.p, counts)
