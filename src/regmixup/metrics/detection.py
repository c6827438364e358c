"""Detection metrics: how well a score separates in-distribution from out-of-distribution samples, by exact ranks.

Scores of any range, larger for out-of-distribution samples, as all of `regmixup.metrics.scores` are. Metrics take both
sets of (N,) scores, or a `ScorePair` of them, which shares the sorting among metrics and may carry weights: resamples
of both sets. To add a metric, write its function and enter it in DETECTION.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.pieces import precise
from regmixup.metrics.ranked import Ranked, Value
from regmixup.types import as_tensor

TPR = 0.95


def check_vector(name: str, scores: Tensor | None) -> Tensor:
    """Return scores as a (N,) tensor without NaN, of at least float32."""
    if scores is None:
        raise ValueError(f"{name} must be given, got None")
    scores = as_tensor(name, scores).detach()
    if scores.ndim != 1 or len(scores) == 0:
        raise ValueError(f"{name} must be a non-empty (N,) tensor, got shape {tuple(scores.shape)}")
    if torch.isnan(scores).any():
        raise ValueError(f"{name} must not contain NaN, got {int(torch.isnan(scores).sum())} of {len(scores)}")
    if not scores.is_floating_point():
        return precise(scores)
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def check_correct(correct: Tensor | None, total: int) -> Tensor:
    """Return whether each of `total` predictions is right as a tensor of booleans."""
    if correct is None:
        raise ValueError("correct must be given, got None")
    correct = as_tensor("correct", correct)
    if correct.shape != (total,) or correct.dtype != torch.bool:
        raise ValueError(f"correct must be booleans of shape ({total},), got {correct.dtype} {tuple(correct.shape)}")
    return correct


@dataclass(frozen=True)
class ScorePair:
    """The sorted scores of in- and out-of-distribution samples, or of right and wrong predictions: `outside` larger."""

    inside: Ranked
    outside: Ranked

    @classmethod
    def of(cls, id_scores: Tensor | ScorePair, ood_scores: Tensor | None) -> ScorePair:
        """Sort id_scores (N,) and ood_scores (M,); return a pair as it is."""
        if isinstance(id_scores, ScorePair):
            return id_scores
        return cls._sorted(check_vector("id_scores", id_scores), check_vector("ood_scores", ood_scores))

    @classmethod
    def of_errors(cls, scores: Tensor | ScorePair, correct: Tensor | None) -> ScorePair:
        """Sort the scores (N,) of right predictions and of wrong ones apart; correct: (N,) bool."""
        if isinstance(scores, ScorePair):
            return scores
        scores = check_vector("scores", scores)
        correct = check_correct(correct, len(scores))
        return cls._sorted(scores[correct], scores[~correct])

    @classmethod
    def _sorted(cls, id_scores: Tensor, ood_scores: Tensor) -> ScorePair:
        common = torch.promote_types(id_scores.dtype, ood_scores.dtype)
        return cls(Ranked.of(id_scores.to(common)), Ranked.of(ood_scores.to(common)))

    def weighted(self, id_weights: Tensor, ood_weights: Tensor) -> ScorePair:
        """Return the same scores with weights (R, N) and (R, M)."""
        return replace(self, inside=self.inside.weighted(id_weights), outside=self.outside.weighted(ood_weights))

    @cached_property
    def inside_below(self) -> tuple[Tensor, Tensor]:
        """(R, M) both: the weight of the scores inside that are <, and <=, each of the scores outside."""
        scores = self.outside.values
        return self.inside.weight_below(scores), self.inside.weight_below(scores, tied=True)

    @cached_property
    def twice_won(self) -> Tensor:
        """(R, 1): twice the number of pairs in which the score outside is the larger, where a tie is half a pair."""
        below, below_or_tied = self.inside_below
        return ((below + below_or_tied) * self.outside.times).sum(dim=1, keepdim=True)

    def result(self, values: Tensor) -> Value:
        """Return values (R, 1) as the result of a metric."""
        return float(values) if self.inside.weights is None else values.squeeze(1)


def auroc(id_scores: Tensor | ScorePair, ood_scores: Tensor | None = None) -> Value:
    """Return P(ood > id) + P(ood = id) / 2 over all pairs: the area under the ROC curve, by counting.

    The count is a whole number, so the result is exact up to one division.

    >>> auroc(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.2, 0.9]))  # 4.5 of 6 pairs
    0.75
    """
    pair = ScorePair.of(id_scores, ood_scores)
    return pair.result(pair.twice_won / (2 * pair.inside.total * pair.outside.total))


def aupr(
    id_scores: Tensor | ScorePair, ood_scores: Tensor | None = None, *, positive: Literal["ood", "id"] = "ood"
) -> Value:
    """Return the average precision, sum over thresholds of (recall_t - recall_{t-1}) precision_t, ties taken together.

    positive="ood" finds out-of-distribution samples by large scores, "id" in-distribution ones by small scores.

    >>> aupr(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4]))
    1.0
    """
    pair = ScorePair.of(id_scores, ood_scores)
    inside, outside = pair.inside, pair.outside
    if positive == "ood":
        wanted = outside
        hits = outside.total - outside.weight_below(outside.values)
        false_alarms = inside.total - pair.inside_below[0]
    elif positive == "id":
        wanted = inside
        hits = inside.weight_below(inside.values, tied=True)
        false_alarms = outside.weight_below(inside.values, tied=True)
    else:
        raise ValueError(f"positive must be 'ood' or 'id', got {positive!r}")
    # A threshold gains recall 1 / N for each wanted sample that lies on it, so the sum is a mean over those. Where a
    # resample has nothing at or beyond a threshold, 0 / 0 counts 0 times.
    precision = hits / false_alarms.add_(hits).clamp_(min=1)
    return pair.result(precision.mul_(wanted.times).sum(dim=1, keepdim=True) / wanted.total)


def fpr_at_tpr(
    id_scores: Tensor | ScorePair,
    ood_scores: Tensor | None = None,
    *,
    tpr: float = TPR,
    convention: Literal["accept_id", "detect_ood"] = "accept_id",
) -> Value:
    """Return the false-positive rate at a given true-positive rate.

    "accept_id": the threshold accepts (score <= threshold) at least `tpr` of the in-distribution samples; the value
        is the share of out-of-distribution samples accepted with them.
    "detect_ood": the threshold detects (score >= threshold) at least `tpr` of the out-of-distribution samples; the
        value is the share of in-distribution samples flagged with them.

    >>> fpr_at_tpr(torch.arange(20.0), torch.tensor([5.0, 18.0, 18.5, 30.0]))
    0.5
    """
    check_number("tpr", tpr, above=0, most=1)
    pair = ScorePair.of(id_scores, ood_scores)
    inside, outside = pair.inside, pair.outside
    if convention == "accept_id":
        threshold = inside.value_at(_needed(tpr, inside.total) - 1)
        accepted = outside.before.gather(1, torch.searchsorted(outside.values, threshold, right=True))
        return pair.result(accepted / outside.total)
    if convention == "detect_ood":
        threshold = outside.value_at(outside.total - _needed(tpr, outside.total))
        missed = inside.before.gather(1, torch.searchsorted(inside.values, threshold))
        return pair.result((inside.total - missed) / inside.total)
    raise ValueError(f"convention must be 'accept_id' or 'detect_ood', got {convention!r}")


def _needed(share: float, total: Tensor) -> Tensor:
    # 0.95 * 20 = 19.000000000000004 must not ask for 20.
    return (share * total - 1e-9).ceil().clamp(min=1)


def needed_count(share: float, total: int) -> int:
    """Return the smallest count, at least 1, that is `share` of `total` or more.

    >>> needed_count(0.95, 20), needed_count(0.95, 21)
    (19, 20)
    """
    return int(_needed(share, torch.tensor(total, dtype=torch.float64)))


@dataclass(frozen=True)
class RocCurve:
    """The corners of a ROC curve, from (0, 0) to (1, 1); between them it is straight.

    threshold: (P,) falling, the first infinite; fpr, tpr: (P,) the shares of in-distribution and of
    out-of-distribution samples whose score is at least the threshold.
    """

    threshold: Tensor
    fpr: Tensor
    tpr: Tensor


def roc_curve(id_scores: Tensor, ood_scores: Tensor) -> RocCurve:
    """Return the ROC curve, out-of-distribution positive: one point per distinct score, tied samples together.

    >>> curve = roc_curve(torch.tensor([0.0, 0.25]), torch.tensor([0.25, 0.5]))
    >>> curve.threshold.tolist(), curve.fpr.tolist(), curve.tpr.tolist()
    ([inf, 0.5, 0.25, 0.0], [0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    pair = ScorePair.of(id_scores, ood_scores)
    inside, outside = precise(pair.inside.values), precise(pair.outside.values)
    levels = torch.cat([inside, outside]).unique().flip(0)

    def shares(scores: Tensor) -> Tensor:
        return torch.cat([levels.new_zeros(1), 1 - precise(torch.searchsorted(scores, levels)) / len(scores)])

    thresholds = torch.cat([levels.new_full((1,), torch.inf), levels])
    return RocCurve(thresholds, fpr=shares(inside), tpr=shares(outside))


DETECTION: dict[str, Callable[..., Value]] = {
    "auroc": auroc,
    "aupr": aupr,
    "aupr_id": partial(aupr, positive="id"),
    "fpr_at_tpr": fpr_at_tpr,
    "fpr_at_tpr_ood": partial(fpr_at_tpr, convention="detect_ood"),
}
