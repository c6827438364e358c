"""The calibration error that temperatures and priors are chosen by."""

from __future__ import annotations

import torch
from torch import Tensor


def ece_of_probs(probs: Tensor, labels: Tensor, num_bins: int = 15) -> float:
    """sum_b |sum of (confidence - correct) over bin b| / N, with bins (lo, hi] of equal width.

    probs: (N, K); labels: (N,). The confidence is the largest probability.

    >>> round(ece_of_probs(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 6)
    0.3
    """
    confidence, predicted = probs.double().max(dim=1)
    edges = torch.arange(num_bins + 1, dtype=confidence.dtype, device=confidence.device) / num_bins
    index = torch.bucketize(confidence, edges).sub_(1).clamp_(0, num_bins - 1)
    gap = torch.bincount(index, weights=confidence - (predicted == labels).double(), minlength=num_bins)
    return float(gap.abs().sum() / len(confidence))
