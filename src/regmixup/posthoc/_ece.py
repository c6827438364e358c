"""The calibration error that temperatures and priors are chosen by."""

from __future__ import annotations

import torch
from torch import Tensor


def ece_of_confidence(confidence: Tensor, correct: Tensor, num_bins: int) -> Tensor:
    """sum_b |sum of (confidence - correct) over bin b| / N, with bins (lo, hi] of equal width: (R, N) -> (R,).

    confidence: (R, N) float64, the largest probability. correct: (N,) float64, 1 where its class is the label.
    """
    edges = torch.arange(num_bins + 1, dtype=torch.float64, device=confidence.device) / num_bins
    index = torch.bucketize(confidence, edges).sub_(1).clamp_(0, num_bins - 1)
    gap = torch.zeros(len(confidence), num_bins, dtype=torch.float64, device=confidence.device)
    gap.scatter_add_(1, index, confidence - correct)
    return gap.abs().sum(dim=1) / confidence.shape[1]


def ece_of_probs(probs: Tensor, labels: Tensor, num_bins: int = 15) -> float:
    """The same of probabilities (N, K) and labels (N,).

    >>> round(ece_of_probs(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 6)
    0.3
    """
    confidence, predicted = probs.double().max(dim=1)
    return float(ece_of_confidence(confidence[None], (predicted == labels).double(), num_bins))
