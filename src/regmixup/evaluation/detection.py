"""How well a score separates in-distribution from out-of-distribution samples. Raw scores of any range; exact ranks.

The score must be larger for out-of-distribution samples, as all of `regmixup.evaluation.scores` are.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor


def _checked(name: str, scores: Tensor) -> Tensor:
    scores = torch.as_tensor(scores)
    if scores.ndim != 1 or len(scores) == 0:
        raise ValueError(f"{name} must be a non-empty (N,) tensor, got shape {tuple(scores.shape)}")
    if torch.isnan(scores).any():
        raise ValueError(f"{name} must not contain NaN, got {int(torch.isnan(scores).sum())} of {len(scores)}")
    return scores.float() if scores.device.type == "mps" else scores.double()


def auroc(id_scores: Tensor, ood_scores: Tensor) -> float:
    """P(ood > id) + P(ood = id) / 2 over all pairs: the area under the ROC curve, by counting.

    The count is an integer, so the result is exact up to one division.

    >>> auroc(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.2, 0.9]))  # 4.5 of 6 pairs
    0.75
    """
    id_scores, ood_scores = _checked("id_scores", id_scores), _checked("ood_scores", ood_scores)
    ordered = id_scores.sort().values
    below = torch.searchsorted(ordered, ood_scores, side="left").sum()
    below_or_tied = torch.searchsorted(ordered, ood_scores, side="right").sum()
    return (int(below) + int(below_or_tied)) / (2 * len(id_scores) * len(ood_scores))


def aupr(id_scores: Tensor, ood_scores: Tensor, *, positive: Literal["ood", "id"] = "ood") -> float:
    """Average precision, sum over thresholds of (recall_t - recall_{t-1}) precision_t, ties taken together.

    positive="ood" finds out-of-distribution samples by large scores, "id" in-distribution ones by small scores.

    >>> aupr(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4]))
    1.0
    """
    id_scores, ood_scores = _checked("id_scores", id_scores), _checked("ood_scores", ood_scores)
    if positive == "ood":
        wanted, other = ood_scores, id_scores
    elif positive == "id":
        wanted, other = -id_scores, -ood_scores
    else:
        raise ValueError(f"positive must be 'ood' or 'id', got {positive!r}")
    levels = torch.cat([wanted, other]).unique()
    found = len(wanted) - torch.searchsorted(wanted.sort().values, levels)
    false = len(other) - torch.searchsorted(other.sort().values, levels)
    precision = found.to(wanted.dtype) / (found + false)
    gained = found - torch.cat([found[1:], found.new_zeros(1)])
    return float((precision * gained).sum() / len(wanted))


def fpr_at_tpr(
    id_scores: Tensor,
    ood_scores: Tensor,
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
    id_scores, ood_scores = _checked("id_scores", id_scores), _checked("ood_scores", ood_scores)
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr must lie in (0, 1], got {tpr!r}")
    if convention == "accept_id":
        wanted, other = id_scores, ood_scores
    elif convention == "detect_ood":
        wanted, other = -ood_scores, -id_scores
    else:
        raise ValueError(f"convention must be 'accept_id' or 'detect_ood', got {convention!r}")
    # The smallest count whose share reaches tpr; the slack keeps 0.95 * 20 = 19.000000000000004 from asking for 20.
    needed = max(1, -int(-(tpr * len(wanted) - 1e-9) // 1))
    threshold = wanted.sort().values[needed - 1]
    return float((other <= threshold).double().mean())
