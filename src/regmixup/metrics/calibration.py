"""Accuracy and calibration of probabilities (N, K) against labels (N,). Exact, in float64, on the whole set at once.

`Outcomes` of both may stand in for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regmixup.metrics.ordering import precise, sorted_pairs, sorted_values
from regmixup.metrics.outcomes import Outcomes, equal_width_edges, outcomes_of

Binning = Literal["width", "interp", "split"]


def accuracy(probs: Tensor | Outcomes, labels: Tensor | None = None) -> float:
    """The share of samples whose most probable class (the first one, if tied) is the label.

    >>> accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
    0.5
    """
    return float(precise(outcomes_of(probs, labels).correct).mean())


def nll(probs: Tensor | Outcomes, labels: Tensor | None = None) -> float:
    """Mean negative log-likelihood, in nats; infinite if a label has probability 0 (nothing is clipped)."""
    terms = outcomes_of(probs, labels, terms=True).nll
    assert terms is not None
    return float(terms.mean())


def brier(probs: Tensor | Outcomes, labels: Tensor | None = None) -> float:
    """Mean squared distance to the one-hot label, summed over classes: between 0 and 2 for any K."""
    terms = outcomes_of(probs, labels, terms=True).brier
    assert terms is not None
    return float(terms.mean())


@dataclass(frozen=True)
class Reliability:
    """Per-bin data of a reliability diagram; empty bins have mean confidence and accuracy NaN.

    edges: (B + 1,); count, confidence, accuracy: (B,). total: all samples, also those in no bin.
    """

    edges: Tensor
    count: Tensor
    confidence: Tensor
    accuracy: Tensor
    total: int

    @property
    def gap(self) -> Tensor:
        """(B,): |confidence_b - accuracy_b|, 0 for empty bins."""
        return torch.nan_to_num((self.confidence - self.accuracy).abs())

    @property
    def error(self) -> float:
        """sum_b n_b / N |confidence_b - accuracy_b|."""
        return float((self.gap * self.count).sum() / self.total)


def reliability(
    probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = 15, binning: Binning = "width"
) -> Reliability:
    """Bin samples by confidence, the largest probability.

    "width": B equal intervals (lo, hi] of [0, 1]; confidence 0 falls in the first.
    "interp": equal mass as in the paper's code: edge j is the sorted confidences interpolated at position j N / B.
        The first interval is open on the left, so samples at the smallest confidence fall in no bin; tied samples go
        to the first bin whose upper edge they reach.
    "split": the sorted samples cut into B runs whose lengths differ by at most one.
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    if binning not in ("width", "interp", "split"):
        raise ValueError(f"binning must be 'width', 'interp' or 'split', got {binning!r}")
    outcomes = outcomes_of(probs, labels)
    confidence, correct = precise(outcomes.confidence), precise(outcomes.correct)
    # Bin 0 holds what lies in no bin; it is cut off at the end.
    if binning == "width":
        edges = equal_width_edges(num_bins, confidence)
        index = torch.bucketize(confidence, edges).clamp_(1, num_bins)
    elif binning == "interp":
        edges = equal_mass_edges(precise(sorted_values(outcomes.confidence)), num_bins)
        index = torch.bucketize(confidence, edges)
    else:
        confidence, correct = map(precise, sorted_pairs(outcomes.confidence, outcomes.correct))
        ends = torch.tensor(run_ends(len(confidence), num_bins), device=confidence.device)
        index = torch.arange(1, num_bins + 1, device=confidence.device).repeat_interleave(ends[1:] - ends[:-1])
        edges = torch.cat([confidence[:1], confidence[(ends[1:] - 1).clamp(0)]])
    count = torch.bincount(index, minlength=num_bins + 1)
    sums = [torch.bincount(index, weights=column, minlength=num_bins + 1) for column in (confidence, correct)]
    mean_confidence, mean_correct = ((total / count)[1:] for total in sums)
    return Reliability(edges, count[1:], mean_confidence, mean_correct, len(confidence))


def equal_mass_edges(ordered: Tensor, num_bins: int) -> Tensor:
    """Sorted values (N,) interpolated at positions j N / B, j = 0..B, the last clamped to the largest value."""
    low, high, share = equal_mass_positions(len(ordered), num_bins, ordered)
    return torch.lerp(ordered[low], ordered[high], share)


def equal_mass_positions(total: int, num_bins: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Positions j N / B, j = 0..B: the whole positions below and above, and how far between them it lies."""
    position = torch.linspace(0, total, num_bins + 1, dtype=like.dtype, device=like.device).clamp(max=total - 1)
    low = position.floor().long()
    return low, (low + 1).clamp(max=total - 1), position - low


def run_ends(total: int, num_bins: int) -> list[int]:
    """Where B runs of `total` samples end, from 0: the first total mod B runs have one sample more.

    >>> run_ends(8, 3)
    [0, 3, 6, 8]
    """
    size, longer = divmod(total, num_bins)
    return [j * size + min(j, longer) for j in range(num_bins + 1)]


def ece(probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = 15) -> float:
    """Expected calibration error over equal-width bins (lo, hi]: sum_b n_b / N |confidence_b - accuracy_b|.

    >>> round(ece(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 6)
    0.3
    """
    return reliability(probs, labels, num_bins=num_bins).error


def adaptive_ece(
    probs: Tensor | Outcomes,
    labels: Tensor | None = None,
    *,
    num_bins: int = 15,
    binning: Literal["interp", "split"] = "interp",
) -> float:
    """Calibration error over bins of equal mass (AdaECE); `reliability` describes both binnings."""
    if binning not in ("interp", "split"):
        raise ValueError(f"binning must be 'interp' or 'split', got {binning!r}")
    return reliability(probs, labels, num_bins=num_bins, binning=binning).error
