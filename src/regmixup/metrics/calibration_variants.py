"""Three further summaries of calibration: per class, worst bin, and without the bias of small bins."""

from __future__ import annotations

import torch
from torch import Tensor

from regmixup.metrics.calibration import Binning, reliability
from regmixup.metrics.ordering import precise
from regmixup.metrics.outcomes import Outcomes, equal_width_edges, outcomes_of


def mce(
    probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = 15, binning: Binning = "width"
) -> float:
    """Maximum calibration error: max_b |confidence_b - accuracy_b| over bins that hold samples (Naeini et al., 2015).

    >>> round(mce(torch.tensor([[0.8, 0.2], [0.6, 0.4]]), torch.tensor([0, 0])), 6)
    0.4
    """
    return float(reliability(probs, labels, num_bins=num_bins, binning=binning).gap.max())


def debiased_ece(
    probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = 15, binning: Binning = "width"
) -> float:
    """The root of the debiased squared calibration error (Bröcker, 2012; Kumar et al., 2019).

        sqrt(max(0, sum_b n_b / N [(confidence_b - accuracy_b)^2 - accuracy_b (1 - accuracy_b) / (n_b - 1)]))

    The plug-in (confidence_b - accuracy_b)^2 is too large on average by the variance of accuracy_b, which the second
    term estimates without bias; a bin of one sample has no such estimate and keeps its plug-in. This is the L2 error:
    it is not smaller than the L1 error, `ece`, except for the correction. (The bias of `ece` itself has no such closed
    form; Roelofs et al., 2022, compare estimators.) The square is unbiased until it is cut at 0: for a calibrated model
    the root is 0 about half of the time and 0.010 on average of 2,000 samples, where `ece` is 0.026.

    >>> probs = torch.tensor([[0.7, 0.3]] * 4)
    >>> round(debiased_ece(probs, torch.tensor([0, 0, 1, 1])), 6)  # (0.7 - 0.5)^2 < 0.25 / 3
    0.0
    >>> round(debiased_ece(probs, torch.tensor([1, 1, 1, 1])), 6)
    0.7
    """
    diagram = reliability(probs, labels, num_bins=num_bins, binning=binning)
    accuracy = torch.nan_to_num(diagram.accuracy)
    terms = diagram.gap.square() - accuracy * (1 - accuracy) / (diagram.count - 1).clamp(min=1)
    return max(0.0, float((diagram.count * terms).sum() / diagram.total)) ** 0.5


def classwise_ece(probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = 15) -> float:
    """Calibration error of every class's probability, averaged over classes (Kull et al., 2019).

        1/K sum_k sum_b |sum_{i in B_kb} (p_ik - 1[y_i = k])| / N

    B_kb: the samples whose probability of class k lies in bin b, (lo, hi] of equal width, 0 in the first.

    >>> round(classwise_ece(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 6)
    0.3
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    outcomes = outcomes_of(probs, labels, class_bins=num_bins)
    gaps = outcomes.class_gaps
    assert gaps is not None
    assert gaps.shape[1] == num_bins
    return float(gaps.abs().sum() / (len(gaps) * len(outcomes.correct)))


def class_bins(probs: Tensor, labels: Tensor, num_bins: int) -> tuple[Tensor, Tensor]:
    """For every sample and class, (N, K): the place k B + b of its bin among all, and p_ik - 1[y_i = k]."""
    probs = precise(probs)
    bins = torch.bucketize(probs, equal_width_edges(num_bins, probs)).sub_(1).clamp_(0, num_bins - 1)
    first = torch.arange(probs.shape[1], device=probs.device) * num_bins
    return bins.add_(first), probs.scatter_add(1, labels[:, None], probs.new_full((len(labels), 1), -1.0))
