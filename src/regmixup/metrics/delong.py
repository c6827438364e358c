"""The uncertainty of an AUROC, and of the difference between two on the same samples (DeLong et al., 1988).

The structural components are sums over pairs; sorting gives all of them in O(n log n) (Sun and Xu, 2014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.detection import check_scores
from regmixup.metrics.ordering import positions, precise, sorted_values


@dataclass(frozen=True)
class AurocEstimate:
    """value: the AUROC; std_error: the root of DeLong's variance; low, high: the interval, cut to [0, 1]."""

    value: float
    std_error: float
    low: float
    high: float


@dataclass(frozen=True)
class AurocDifference:
    """difference: first - second, with its standard error and interval; z: their quotient; p_value: two-sided."""

    first: float
    second: float
    difference: float
    std_error: float
    low: float
    high: float
    z: float
    p_value: float


def auroc_interval(id_scores: Tensor, ood_scores: Tensor, *, level: float = 0.95) -> AurocEstimate:
    """Return the AUROC with DeLong's variance, var(V_ood) / n_ood + var(V_id) / n_id, and a normal interval of `level`.

    V_ood of an out-of-distribution sample is the share of in-distribution samples below it, V_id of an in-distribution
    sample the share of out-of-distribution samples above it, ties counting one half; the mean of either is the AUROC.
    Needs two samples of each kind.

    >>> import torch
    >>> found = auroc_interval(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 3.0]))
    >>> round(found.value, 4), round(found.std_error, 4)  # V_ood = 1/2, 1; V_id = 1, 3/4, 1/2
    (0.75, 0.2887)
    """
    check_number("level", level, above=0, below=1)
    above, below = _components(id_scores, ood_scores)
    value, error = float(below.mean()), math.sqrt(float(_variance(above) + _variance(below)))
    margin = _margin(level) * error
    return AurocEstimate(value, error, max(0.0, value - margin), min(1.0, value + margin))


def compare_auroc(
    first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], *, level: float = 0.95
) -> AurocDifference:
    """Test whether two scores, or two models, differ on the same samples: DeLong's paired test.

    first, second: (id_scores, ood_scores) each, sample i of one belonging to sample i of the other. The variance of the
    difference is that of the differences of the structural components, so what both share cancels.
    """
    check_number("level", level, above=0, below=1)
    components = _components(*first), _components(*second)
    sizes = [tuple(len(part) for part in pair) for pair in components]
    if sizes[0] != sizes[1]:
        raise ValueError(f"both must score the same samples, got {sizes[0]} and {sizes[1]} (id, ood) of them")
    one, two = (float(below.mean()) for _, below in components)
    difference = one - two
    error = math.sqrt(float(sum(_variance(a - b) for a, b in zip(*components, strict=True))))
    z = difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
    margin = _margin(level) * error
    p_value = math.erfc(abs(z) / math.sqrt(2))
    return AurocDifference(one, two, difference, error, difference - margin, difference + margin, z, p_value)


def _components(id_scores: Tensor, ood_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return V_id (N,) and V_ood (M,), in the order given."""
    inside, outside = check_scores(id_scores, ood_scores)
    if min(len(inside), len(outside)) < 2:
        raise ValueError(f"a variance needs two samples of each kind, got {len(inside)} id and {len(outside)} ood")
    less, less_or_tied = positions(sorted_values(outside), inside)
    above = 1 - precise(less + less_or_tied) / (2 * len(outside))
    less, less_or_tied = positions(sorted_values(inside), outside)
    return above, precise(less + less_or_tied) / (2 * len(inside))


def _variance(component: Tensor) -> Tensor:
    return component.var() / len(component)


def _margin(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
