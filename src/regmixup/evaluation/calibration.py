"""Accuracy and calibration of probabilities (N, K) against labels (N,). Exact, in float64, on the whole set at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


def _checked(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    probs, labels = torch.as_tensor(probs), torch.as_tensor(labels)
    if probs.ndim != 2 or not probs.is_floating_point():
        raise ValueError(f"probs must be floating point of shape (N, K), got {probs.dtype} {tuple(probs.shape)}")
    if labels.shape != probs.shape[:1] or labels.is_floating_point():
        raise ValueError(f"labels must be integers of shape ({len(probs)},), got {labels.dtype} {tuple(labels.shape)}")
    if len(probs) == 0:
        raise ValueError("probs must hold at least one sample, got 0")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= probs.shape[1]:
        unknown = " (-1: the class is unknown, or not one of the model's by name)" if low == -1 else ""
        raise ValueError(f"labels must lie in [0, {probs.shape[1]}), got values from {low} to {high}{unknown}")
    least, most = float(probs.min()), float(probs.max())
    if not (least >= 0 and most <= 1 + 1e-3):
        raise ValueError(f"probs must lie in [0, 1] (pass softmax(logits)), got values from {least:g} to {most:g}")
    return probs.double() if probs.device.type != "mps" else probs.float(), labels.long()


def accuracy(probs: Tensor, labels: Tensor) -> float:
    """The share of samples whose most probable class (the first one, if tied) is the label.

    >>> accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
    0.5
    """
    probs, labels = _checked(probs, labels)
    return float((probs.argmax(dim=1) == labels).double().mean())


def nll(probs: Tensor, labels: Tensor) -> float:
    """Mean negative log-likelihood, in nats; infinite if a label has probability 0 (nothing is clipped)."""
    probs, labels = _checked(probs, labels)
    return float(-probs.gather(1, labels[:, None]).log().mean())


def brier(probs: Tensor, labels: Tensor) -> float:
    """Mean squared distance to the one-hot label, summed over classes: between 0 and 2 for any K."""
    probs, labels = _checked(probs, labels)
    target = torch.zeros_like(probs).scatter_(1, labels[:, None], 1.0)
    return float((probs - target).square().sum(dim=1).mean())


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
    def error(self) -> float:
        """sum_b n_b / N |confidence_b - accuracy_b|."""
        gap = torch.nan_to_num((self.confidence - self.accuracy).abs())
        return float((gap * self.count).sum() / self.total)


def reliability(
    probs: Tensor,
    labels: Tensor,
    *,
    num_bins: int = 15,
    binning: Literal["width", "interp", "split"] = "width",
) -> Reliability:
    """Bin samples by confidence, the largest probability.

    "width": B equal intervals (lo, hi] of [0, 1]; confidence 0 falls in the first.
    "interp": equal mass as in the paper's code: edge j is the sorted confidences interpolated at position j N / B.
        The first interval is open on the left, so samples at the smallest confidence fall in no bin; tied samples go
        to the first bin whose upper edge they reach.
    "split": the sorted samples cut into B runs whose lengths differ by at most one.
    """
    probs, labels = _checked(probs, labels)
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    confidence, predicted = probs.max(dim=1)
    correct = (predicted == labels).to(confidence.dtype)
    total = len(confidence)
    if binning == "width":
        edges = torch.arange(num_bins + 1, dtype=confidence.dtype, device=confidence.device) / num_bins
        index = torch.bucketize(confidence, edges).sub_(1).clamp_(0, num_bins - 1)
    elif binning == "interp":
        edges = _equal_mass_edges(confidence, num_bins)
        index = torch.bucketize(confidence, edges).sub_(1)
    elif binning == "split":
        confidence, order = confidence.sort(stable=True)
        correct = correct[order]
        sizes = torch.tensor([len(part) for part in torch.arange(total).tensor_split(num_bins)]).to(confidence.device)
        index = torch.arange(num_bins, device=confidence.device).repeat_interleave(sizes)
        edges = torch.cat([confidence[:1], confidence[sizes.cumsum(0).sub(1).clamp(0)]])
    else:
        raise ValueError(f"binning must be 'width', 'interp' or 'split', got {binning!r}")
    inside = index >= 0
    index, confidence, correct = index[inside], confidence[inside], correct[inside]
    count = torch.bincount(index, minlength=num_bins)
    mean_confidence = torch.bincount(index, weights=confidence, minlength=num_bins) / count
    mean_correct = torch.bincount(index, weights=correct, minlength=num_bins) / count
    return Reliability(edges, count, mean_confidence, mean_correct, total)


def _equal_mass_edges(confidence: Tensor, num_bins: int) -> Tensor:
    """Sorted values interpolated at positions j N / B, j = 0..B, the last clamped to the largest value."""
    ordered = confidence.sort().values
    position = torch.linspace(0, len(ordered), num_bins + 1, dtype=ordered.dtype, device=ordered.device)
    position = position.clamp(max=len(ordered) - 1)
    low = position.floor().long()
    high = (low + 1).clamp(max=len(ordered) - 1)
    return torch.lerp(ordered[low], ordered[high], position - low)


def ece(probs: Tensor, labels: Tensor, *, num_bins: int = 15) -> float:
    """Expected calibration error over equal-width bins (lo, hi]: sum_b n_b / N |confidence_b - accuracy_b|.

    >>> round(ece(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 6)
    0.3
    """
    return reliability(probs, labels, num_bins=num_bins).error


def adaptive_ece(
    probs: Tensor, labels: Tensor, *, num_bins: int = 15, binning: Literal["interp", "split"] = "interp"
) -> float:
    """Calibration error over bins of equal mass (AdaECE); `reliability` describes both binnings."""
    if binning not in ("interp", "split"):
        raise ValueError(f"binning must be 'interp' or 'split', got {binning!r}")
    return reliability(probs, labels, num_bins=num_bins, binning=binning).error
