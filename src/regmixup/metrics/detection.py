"""Detection metrics: how well a score separates in-distribution from out-of-distribution samples, by exact ranks.

Scores of any range, larger for out-of-distribution samples, as all of `regmixup.metrics.scores` are. Metrics take (N,)
scores in any order, or `Ordered` ones, which lets several metrics, and several sets against one, share the sorting.

Beside each metric stands its resampled form, `resampled_*`, which returns (R,) values: for each of R resamples of both
sets, what the metric returns for the samples repeated that often. Both sets are sorted once, and each sample finds its
place in the other set once; a resample only changes how many samples are drawn before a place, which cumulative counts
say.

The last part is DeLong's uncertainty of an AUROC, and of the difference between two on the same samples (DeLong et al.,
1988). Its structural components are sums over pairs; sorting gives all of them in O(n log n) (Sun and Xu, 2014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import check_count, check_number
from regmixup.metrics.ordering import cumulative, places, positions, precise, sorted_values, take_columns

TPR = 0.95


def check_scores(id_scores: Tensor, ood_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return both as (N,) tensors without NaN, of one type that holds every value given."""
    pair = check_vector("id_scores", id_scores), check_vector("ood_scores", ood_scores)
    common = torch.promote_types(pair[0].dtype, pair[1].dtype)
    return pair[0].to(common), pair[1].to(common)


def check_vector(name: str, scores: Tensor) -> Tensor:
    """Return scores as a (N,) tensor without NaN, of at least float32."""
    scores = torch.as_tensor(scores).detach()
    if scores.ndim != 1 or len(scores) == 0:
        raise ValueError(f"{name} must be a non-empty (N,) tensor, got shape {tuple(scores.shape)}")
    if torch.isnan(scores).any():
        raise ValueError(f"{name} must not contain NaN, got {int(torch.isnan(scores).sum())} of {len(scores)}")
    if not scores.is_floating_point():
        return precise(scores)
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def check_flags(name: str, flags: Tensor, total: int) -> Tensor:
    """Return flags as a tensor of booleans, one for each of `total` samples."""
    flags = torch.as_tensor(flags)
    if flags.shape != (total,) or flags.dtype != torch.bool:
        raise ValueError(f"{name} must be booleans of shape ({total},), got {flags.dtype} {tuple(flags.shape)}")
    return flags


class Ordered:
    """Scores (N,) without NaN, in ascending order."""

    def __init__(self, scores: Tensor, name: str = "scores") -> None:
        self.values = sorted_values(check_vector(name, scores))

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def own(self) -> tuple[Tensor, Tensor]:
        """Return how many of the values are < and <= each of them, (N,) both."""
        return positions(self.values, self.values)


Scores = Tensor | Ordered


def _pair(id_scores: Scores, ood_scores: Scores) -> tuple[Ordered, Ordered]:
    inside = id_scores if isinstance(id_scores, Ordered) else Ordered(id_scores, "id_scores")
    return inside, ood_scores if isinstance(ood_scores, Ordered) else Ordered(ood_scores, "ood_scores")


class SortedScores:
    """One set of scores (N,) in ascending order, with the places of its values in itself and in another set (M,).

    own, other: (below, below_or_tied) each, how many samples of that set are < and <= each of the values, (N,).
    """

    def __init__(self, scores: Tensor, other: Tensor) -> None:
        self.values, self.order = scores.sort()
        self.own = positions(self.values, self.values)
        self.other = positions(other.sort().values, self.values)
        self.tied = bool((self.other[0] != self.other[1]).any())


@dataclass(frozen=True)
class ResampledScores:
    """One set of scores and some resamples of it: counts (R, N) in ascending order of the scores."""

    scores: SortedScores
    counts: Tensor

    def __len__(self) -> int:
        return len(self.scores.values)

    @cached_property
    def drawn(self) -> Tensor:
        """(R, N + 1): how many samples are drawn among those with the 0, 1, ..., N smallest scores."""
        return cumulative(self.counts, torch.int32)


def auroc(id_scores: Scores, ood_scores: Scores) -> float:
    """Return P(ood > id) + P(ood = id) / 2 over all pairs: the area under the ROC curve, by counting.

    The count is an integer, so the result is exact up to one division.

    >>> auroc(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.2, 0.9]))  # 4.5 of 6 pairs
    0.75
    """
    inside, outside = _pair(id_scores, ood_scores)
    below, below_or_tied = positions(inside.values, outside.values)
    return int(below.sum() + below_or_tied.sum()) / (2 * len(inside) * len(outside))


def resampled_auroc(inside: ResampledScores, outside: ResampledScores) -> Tensor:
    """Count from the smaller set, whose samples each look up one place in the other."""
    pairs = len(inside) * len(outside)
    won = 2 * pairs - _pairs(inside, outside) if len(inside) <= len(outside) else _pairs(outside, inside)
    return precise(won) / (2 * pairs)


def _pairs(own: ResampledScores, other: ResampledScores) -> Tensor:
    """Return twice the number of drawn pairs in which the other sample is smaller, a tie counting once."""
    below = take_columns(other.drawn, own.scores.other[0])
    twice = below + (take_columns(other.drawn, own.scores.other[1]) if own.scores.tied else below)
    return twice.mul_(own.counts).sum(dim=1)


def aupr(id_scores: Scores, ood_scores: Scores, *, positive: Literal["ood", "id"] = "ood") -> float:
    """Return the average precision, sum over thresholds of (recall_t - recall_{t-1}) precision_t, ties taken together.

    positive="ood" finds out-of-distribution samples by large scores, "id" in-distribution ones by small scores.

    >>> aupr(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4]))
    1.0
    """
    inside, outside = _pair(id_scores, ood_scores)
    if positive == "ood":
        found = len(outside) - outside.own[0]
        false = len(inside) - places(inside.values, outside.values)
    elif positive == "id":
        found = inside.own[1]
        false = places(outside.values, inside.values, right=True)
    else:
        raise ValueError(f"positive must be 'ood' or 'id', got {positive!r}")
    # A threshold gains recall 1 / N for each wanted sample that lies on it, so the sum is a mean over those.
    return float((precise(found) / (found + false)).mean())


def resampled_aupr(inside: ResampledScores, outside: ResampledScores) -> Tensor:
    found = len(outside) - take_columns(outside.drawn, outside.scores.own[0])
    false = len(inside) - take_columns(inside.drawn, outside.scores.other[0])
    return _mean_precision(outside.counts, found, false)


def resampled_aupr_id(inside: ResampledScores, outside: ResampledScores) -> Tensor:
    found = take_columns(inside.drawn, inside.scores.own[1])
    false = take_columns(outside.drawn, inside.scores.other[1])
    return _mean_precision(inside.counts, found, false)


def _mean_precision(counts: Tensor, found: Tensor, false: Tensor) -> Tensor:
    # Where nothing is found or flagged nothing is drawn either: 0 / 0 counts 0 times.
    precision = precise(found) / false.add_(found).clamp_(min=1)
    return precision.mul_(counts).sum(dim=1) / counts.shape[1]


def fpr_at_tpr(
    id_scores: Scores,
    ood_scores: Scores,
    *,
    tpr: float = TPR,
    convention: Literal["accept_id", "detect_ood"] = "accept_id",
) -> float:
    """Return the false-positive rate at a given true-positive rate.

    "accept_id": the threshold accepts (score <= threshold) at least `tpr` of the in-distribution samples; the value
        is the share of out-of-distribution samples accepted with them.
    "detect_ood": the threshold detects (score >= threshold) at least `tpr` of the out-of-distribution samples; the
        value is the share of in-distribution samples flagged with them.

    >>> fpr_at_tpr(torch.arange(20.0), torch.tensor([5.0, 18.0, 18.5, 30.0]))
    0.5
    """
    inside, outside = _pair(id_scores, ood_scores)
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr must lie in (0, 1], got {tpr!r}")
    if convention == "accept_id":
        threshold = inside.values[needed_count(tpr, len(inside)) - 1]
        return int(places(outside.values, threshold[None], right=True)) / len(outside)
    if convention == "detect_ood":
        threshold = outside.values[len(outside) - needed_count(tpr, len(outside))]
        return (len(inside) - int(places(inside.values, threshold[None]))) / len(inside)
    raise ValueError(f"convention must be 'accept_id' or 'detect_ood', got {convention!r}")


def resampled_fpr_at_tpr(inside: ResampledScores, outside: ResampledScores) -> Tensor:
    threshold = _place(inside.drawn, needed_count(TPR, len(inside)) - 1)
    accepted = outside.drawn.gather(1, inside.scores.other[1][threshold][:, None])
    return precise(accepted.squeeze(1)) / len(outside)


def resampled_fpr_at_tpr_ood(inside: ResampledScores, outside: ResampledScores) -> Tensor:
    threshold = _place(outside.drawn, len(outside) - needed_count(TPR, len(outside)))
    missed = inside.drawn.gather(1, outside.scores.other[0][threshold][:, None])
    return precise(len(inside) - missed.squeeze(1)) / len(inside)


def _place(drawn: Tensor, position: int) -> Tensor:
    """Return the sorted sample at this position, from 0, of every resample, (R,): the first with more drawn."""
    wanted = torch.full((len(drawn), 1), position, dtype=drawn.dtype, device=drawn.device)
    return torch.searchsorted(drawn, wanted, right=True).squeeze(1) - 1


def needed_count(share: float, total: int) -> int:
    """Return the smallest count, at least 1, that is `share` of `total` or more.

    >>> needed_count(0.95, 20), needed_count(0.95, 21)
    (19, 20)
    """
    # The slack keeps 0.95 * 20 = 19.000000000000004 from asking for 20.
    return max(1, math.ceil(share * total - 1e-9))


@dataclass(frozen=True)
class RocCurve:
    """The corners of a ROC curve, from (0, 0) to (1, 1); between them it is straight.

    threshold: (P,) falling, the first infinite; fpr, tpr: (P,) the shares of in-distribution and of
    out-of-distribution samples whose score is at least the threshold.
    """

    threshold: Tensor
    fpr: Tensor
    tpr: Tensor


def roc_curve(id_scores: Tensor, ood_scores: Tensor, *, max_points: int | None = None) -> RocCurve:
    """Return the ROC curve, out-of-distribution positive: one point per distinct score, tied samples together.

    max_points: keep at most this many of the points. Of the curve's length in steps along both axes, 2, those around
    the ends of n = floor(max_points / 2) - 1 equal pieces are kept; as fpr and tpr never fall, the thinned curve stays
    within 2 / n of the exact one along either axis.

    >>> curve = roc_curve(torch.tensor([0.0, 0.25]), torch.tensor([0.25, 0.5]))
    >>> curve.threshold.tolist(), curve.fpr.tolist(), curve.tpr.tolist()
    ([inf, 0.5, 0.25, 0.0], [0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    if max_points is not None:
        check_count("max_points", max_points, least=4)
    inside, outside = (sorted_values(precise(scores)) for scores in check_scores(id_scores, ood_scores))
    levels = torch.cat([inside, outside]).unique().flip(0)
    flagged = torch.cat([levels.new_zeros(1), 1 - precise(torch.searchsorted(inside, levels)) / len(inside)])
    detected = torch.cat([levels.new_zeros(1), 1 - precise(torch.searchsorted(outside, levels)) / len(outside)])
    curve = RocCurve(torch.cat([levels.new_full((1,), torch.inf), levels]), flagged, detected)
    if max_points is None or len(levels) < max_points:
        return curve
    length = flagged + detected
    targets = torch.linspace(0, 2, max_points // 2, dtype=length.dtype, device=length.device)
    after = torch.searchsorted(length, targets).clamp(max=len(length) - 1)
    before = torch.searchsorted(length, targets, right=True).sub(1).clamp(0)
    kept = torch.cat([before, after]).unique()
    return RocCurve(curve.threshold[kept], flagged[kept], detected[kept])


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

    >>> found = auroc_interval(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 3.0]))
    >>> round(found.value, 4), round(found.std_error, 4)  # V_ood = 1/2, 1; V_id = 1, 3/4, 1/2
    (0.75, 0.2887)
    """
    check_number("level", level, above=0, below=1)
    above, below = _components(id_scores, ood_scores)
    value, error = float(below.mean()), math.sqrt(float(_variance(above) + _variance(below)))
    margin = NormalDist().inv_cdf((1 + level) / 2) * error
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
    margin = NormalDist().inv_cdf((1 + level) / 2) * error
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
