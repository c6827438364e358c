"""How well a score separates in-distribution from out-of-distribution samples. Raw scores of any range; exact ranks.

The score must be larger for out-of-distribution samples, as all of `regmixup.metrics.scores` are. Metrics take (N,)
scores in any order, or `Ordered` ones, which lets several metrics, and several sets against one, share the sorting.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import check_count
from regmixup.metrics.ordering import places, positions, precise, sorted_values


def check_scores(id_scores: Tensor, ood_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Both as (N,) tensors without NaN, of one type that holds every value given."""
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


class Ordered:
    """Scores (N,) without NaN, in ascending order."""

    def __init__(self, scores: Tensor, name: str = "scores") -> None:
        self.values = sorted_values(check_vector(name, scores))

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def own(self) -> tuple[Tensor, Tensor]:
        """How many of them are < and <= each of them, (N,) both."""
        return positions(self.values, self.values)


Scores = Tensor | Ordered


def _pair(id_scores: Scores, ood_scores: Scores) -> tuple[Ordered, Ordered]:
    inside = id_scores if isinstance(id_scores, Ordered) else Ordered(id_scores, "id_scores")
    return inside, ood_scores if isinstance(ood_scores, Ordered) else Ordered(ood_scores, "ood_scores")


def auroc(id_scores: Scores, ood_scores: Scores) -> float:
    """P(ood > id) + P(ood = id) / 2 over all pairs: the area under the ROC curve, by counting.

    The count is an integer, so the result is exact up to one division.

    >>> auroc(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.2, 0.9]))  # 4.5 of 6 pairs
    0.75
    """
    inside, outside = _pair(id_scores, ood_scores)
    below, below_or_tied = positions(inside.values, outside.values)
    return int(below.sum() + below_or_tied.sum()) / (2 * len(inside) * len(outside))


def aupr(id_scores: Scores, ood_scores: Scores, *, positive: Literal["ood", "id"] = "ood") -> float:
    """Average precision, sum over thresholds of (recall_t - recall_{t-1}) precision_t, ties taken together.

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


def fpr_at_tpr(
    id_scores: Scores,
    ood_scores: Scores,
    *,
    tpr: float = 0.95,
    convention: Literal["accept_id", "detect_ood"] = "accept_id",
) -> float:
    """The false-positive rate at a given true-positive rate.

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


def needed_count(share: float, total: int) -> int:
    """The smallest count, at least 1, that is `share` of `total` or more.

    >>> needed_count(0.95, 20), needed_count(0.95, 21)
    (19, 20)
    """
    # The slack keeps 0.95 * 20 = 19.000000000000004 from asking for 20.
    return max(1, -int(-(share * total - 1e-9) // 1))


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
    """The ROC curve, out-of-distribution positive: one point per distinct score, tied samples together.

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
