"""The one rule for differences: Welch between trainings, paired within a network, Holm within a named family.

Two methods are trainings with seeds of their own, so their difference has Welch's interval. Two sets of batch-norm
statistics of the same networks are paired by seed. docs/conventions.md states the rule once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from archives import C10, Setting, load, trained

from regmixup.names import signed
from regmixup.report import significance

METHODS = [
    "dnn", "regmixup", "half-regmixup", "bimodal", "mixup", "cutmix", "regcutmix", "mixup+cutmix", "regmixup+cutmix",
    "regmixup+regcutmix", "reliable", "augmix", "label-smoothing", "kfac-llla", "deep-ensemble",
]  # fmt: skip
CHOICES = [
    "regmixup(alpha=1)", "regmixup(alpha=10)", "regmixup(eta=0.5)", "regmixup(eta=2)", "regmixup(scale=sum)",
    "regmixup(lam=sample)", "regmixup(passes=separate)", "regmixup(passes=separate-clean)",
]  # fmt: skip
Pair = tuple[Setting, Setting]
"""Two trainings, or the same networks with other statistics of batch norm: this minus that."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, or a difference of two means, as results.csv has it; None needs two seeds (on each side).

    low, high: the 95 % interval. p: of no difference, two-sided. n: the seeds behind a mean, of both sides of a
    difference, or of networks that are compared with themselves. std: of a mean.
    """

    value: float
    low: float | None
    high: float | None
    p: float | None
    n: tuple[int, ...]
    std: float | None = None

    @property
    def stands(self) -> bool:
        """Return whether p says that there is a difference."""
        return self.p is not None and self.p < significance.LEVEL

    def text(self, digits: int = 2) -> str:
        """Return the difference with its interval, or in brackets where there is none."""
        if self.low is None or self.high is None:
            return f"({signed(self.value, digits)})"
        return f"{signed(self.value, digits)} [{signed(self.low, digits)}, {signed(self.high, digits)}]"


def archived(epochs: int, train_set: str = C10) -> list[Setting]:
    """Return the settings of every method that archives have after so many epochs on ResNet-18."""
    return [setting for method in METHODS if (setting := trained(method, epochs, train_set)) in load("*")]


def against(reference: str, epochs: int, train_set: str = C10) -> list[Pair]:
    """Return the pairs of every other method that archives have, and a reference.

    KFAC-LLLA is not among them: its seeds share one prior variance.
    """
    settings = [setting for setting in archived(epochs, train_set) if setting.method not in (reference, "kfac-llla")]
    return [(setting, replace(setting, method=reference)) for setting in settings]


def mean_of(setting: Setting, quantity: str, *, study: str = "*") -> Estimate:
    """Return the mean of a quantity over the seeds of a setting. study: see `load`."""
    values = [*load(study)[setting][quantity].values()]
    low, high = significance.mean_interval(values) or (None, None)
    return Estimate(fmean(values), low, high, None, (len(values),), stdev(values) if len(values) > 1 else None)


def welch(setting: Setting, reference: Setting, quantity: str, *, study: str = "*") -> Estimate | None:
    """Return the difference of two trainings; None where one of them was not measured. study: see `load`."""
    ours, theirs = ([*load(study).get(side, {}).get(quantity, {}).values()] for side in (setting, reference))
    if not ours or not theirs:
        return None
    counts = len(ours), len(theirs)
    if min(counts) < 2:
        return Estimate(fmean(ours) - fmean(theirs), None, None, None, counts)
    return _tested(significance.difference(ours, theirs), counts)


def with_holm(differences: Mapping[str, Estimate | None], tested: Collection[str] | None = None) -> dict[str, Estimate]:
    """Return the differences that were measured, their p with Holm's correction over all that have one.

    tested: the names that the correction runs over, default all; the others are described and lose their p.
    """
    measured = {name: difference for name, difference in differences.items() if difference is not None}
    family = {name: measured[name].p for name in measured if tested is None or name in tested}
    corrected = significance.holm({name: p for name, p in family.items() if p is not None})
    return {name: replace(difference, p=corrected.get(name)) for name, difference in measured.items()}


def paired(setting: Setting, reference: Setting, quantity: str, *, study: str = "*") -> Estimate | None:
    """Return the difference of the same networks, paired by seed; None with fewer than two seeds. study: see `load`."""
    ours, theirs = (load(study)[side].get(quantity, {}) for side in (setting, reference))
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < 2:
        return None
    sides = ([side[seed] for seed in seeds] for side in (ours, theirs))
    # Without a share of test images there is nothing to correct: the plain paired t-test.
    return _tested(significance.resampled_difference(*sides, test_share=0.0), (len(seeds),))


def difference(ours: Setting, theirs: Setting, quantity: str, *, study: str = "*") -> Estimate | None:
    """Return the difference of a pair: `welch` of two trainings, `paired` of other statistics. study: see `load`."""
    compare = welch if ours.statistics == theirs.statistics else paired
    return compare(ours, theirs, quantity, study=study)


def _tested(difference: significance.MeanDifference, counts: tuple[int, ...]) -> Estimate:
    return Estimate(difference.mean, *difference.interval(), difference.p, counts)
