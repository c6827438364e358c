"""Accuracy and calibration of probabilities (N, K) against labels (N,), in float64, exact on the whole set.

Each metric takes probabilities and labels, or their `Outcomes`, whose weights turn its value into R resampled ones.
To add a metric, write its function and enter it in CLASSIFICATION: `evaluate` measures all of these. Less of a metric
is better unless `regmixup.types.higher_is_better` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import check_count
from regmixup.metrics.outcomes import NUM_BINS, Outcomes, equal_width_edges, outcomes_of
from regmixup.metrics.pieces import precise
from regmixup.metrics.ranked import Ranked, Value


def accuracy(probs: Tensor | Outcomes, labels: Tensor | None = None) -> Value:
    """Return the share of samples whose most probable class (the first one, if tied) is the label.

    >>> accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
    0.5
    """
    outcomes = outcomes_of(probs, labels)
    return outcomes.mean(precise(outcomes.correct))


def nll(probs: Tensor | Outcomes, labels: Tensor | None = None) -> Value:
    """Return the mean negative log-likelihood, in nats; infinite if a label has probability 0 (nothing is clipped)."""
    outcomes = outcomes_of(probs, labels, terms=True)
    terms = outcomes.nll
    assert terms is not None
    impossible = torch.isinf(terms)
    if outcomes.weights is None or not impossible.any():
        return outcomes.mean(terms)
    # A resample is infinite only if it has drawn an impossible label; 0 times infinity would be NaN.
    drawn = (outcomes.times[:, impossible] > 0).any(dim=1)
    return outcomes.mean(terms.masked_fill(impossible, 0.0)).masked_fill(drawn, torch.inf)


def brier(probs: Tensor | Outcomes, labels: Tensor | None = None) -> Value:
    """Return the mean squared distance to the one-hot label, summed over classes: between 0 and 2 for any K."""
    outcomes = outcomes_of(probs, labels, terms=True)
    assert outcomes.brier is not None
    return outcomes.mean(outcomes.brier)


def _equal_width(samples: Ranked, num_bins: int) -> Tensor:
    """Return the bounds of `ece`'s bins, see `_in_bins`; they are the same for all weights."""
    check_count("num_bins", num_bins)
    edges = equal_width_edges(num_bins, samples.values)[None]
    bounds = torch.searchsorted(samples.values, edges, right=True)
    bounds[:, 0] = 0  # confidence 0 lies in the first bin,
    bounds[:, -1] = len(samples.values)  # and one rounded to just above 1 in the last
    return bounds


def _interpolated(samples: Ranked, num_bins: int) -> Tensor:
    """Return the bounds of `adaptive_ece`'s bins "interp"."""
    totals = samples.total.flatten().tolist()
    positions = torch.stack([torch.linspace(0, total, num_bins + 1, dtype=samples.values.dtype) for total in totals])
    last = samples.total - 1
    positions = positions.to(last.device).minimum(last)
    low = positions.floor()
    below, above = samples.value_at(low), samples.value_at((low + 1).minimum(last))
    edges = torch.lerp(below, above, positions - low)
    return torch.searchsorted(samples.values, edges, right=True)


def _split(samples: Ranked, num_bins: int) -> Tensor:
    """Return the bounds of `adaptive_ece`'s bins "split": the first N mod B of them hold one sample more."""
    bins = torch.arange(num_bins + 1, device=samples.values.device)
    places = bins * (samples.total // num_bins) + bins.minimum(samples.total % num_bins)
    return torch.searchsorted(samples.before, places)


def _in_bins(cumulated: Tensor, bounds: Tensor) -> Tensor:
    """Return what each bin adds to cumulative sums of the samples: (R, N + 1) -> (R, B).

    bounds: how many samples, by rising confidence, lie before each edge of the bins, (R, B + 1) or (1, B + 1).
    """
    return cumulated.gather(1, bounds.expand(len(cumulated), -1)).diff(dim=1)


@dataclass(frozen=True)
class Reliability:
    """Per-bin data of a reliability diagram; empty bins have mean confidence and accuracy NaN.

    count, confidence, accuracy: (B,).
    """

    count: Tensor
    confidence: Tensor
    accuracy: Tensor


def reliability(probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = NUM_BINS) -> Reliability:
    """Bin samples by confidence, the largest probability: B equal intervals (lo, hi] of [0, 1]; 0 is in the first."""
    outcomes = outcomes_of(probs, labels)
    assert outcomes.weights is None, "a diagram is of samples that count once"
    bounds = _equal_width(outcomes.ranked, num_bins)
    count = _in_bins(outcomes.ranked.before, bounds)[0]
    accuracy = _in_bins(outcomes.right_before, bounds)[0] / count
    confidence = _in_bins(outcomes.gap_before, bounds)[0] / count + accuracy
    return Reliability(count.long(), confidence, accuracy)


def ece(probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = NUM_BINS) -> Value:
    """Return the expected calibration error over equal-width bins (lo, hi]: sum_b n_b / N |confidence_b - accuracy_b|.

    >>> round(ece(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 6)
    0.3
    """
    outcomes = outcomes_of(probs, labels)
    gaps = _in_bins(outcomes.gap_before, _equal_width(outcomes.ranked, num_bins))
    return outcomes.result(ece_from_gaps(gaps, outcomes.total))


def adaptive_ece(
    probs: Tensor | Outcomes,
    labels: Tensor | None = None,
    *,
    num_bins: int = NUM_BINS,
    binning: Literal["interp", "split"] = "interp",
) -> Value:
    """Return the calibration error over bins of equal mass (AdaECE).

    "interp": as in the paper's code: edge j is the sorted confidences interpolated at position j N / B. The first
        interval is open on the left, so samples at the smallest confidence fall in no bin; tied samples go to the first
        bin whose upper edge they reach.
    "split": the sorted samples cut into B runs whose lengths differ by at most one. A sample that a resample has drawn
        several times stays in one run.
    """
    if binning not in ("interp", "split"):
        raise ValueError(f"binning must be 'interp' or 'split', got {binning!r}")
    check_count("num_bins", num_bins)
    outcomes = outcomes_of(probs, labels)
    bounds_of = _interpolated if binning == "interp" else _split
    gaps = _in_bins(outcomes.gap_before, bounds_of(outcomes.ranked, num_bins))
    return outcomes.result(ece_from_gaps(gaps, outcomes.total))


def ece_from_gaps(gaps: Tensor, total: Tensor | int) -> Tensor:
    """Return the calibration error from gaps (..., B), the sums over every bin of confidence - correct: (...).

    n_b |confidence_b - accuracy_b| is |sum of confidence - correct over bin b|: the form of `ece` that needs no
    division by counts.
    """
    return gaps.abs().sum(dim=-1) / total


def debiased_ece(probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = NUM_BINS) -> Value:
    """Return the root of the debiased squared calibration error (Bröcker, 2012; Kumar et al., 2019).

        sqrt(max(0, sum_b n_b / N [(confidence_b - accuracy_b)^2 - accuracy_b (1 - accuracy_b) / (n_b - 1)]))

    The plug-in (confidence_b - accuracy_b)^2 is too large on average by the variance of accuracy_b, which the second
    term estimates without bias; a bin of one sample has no such estimate and keeps its plug-in. This is the L2 error:
    it is not smaller than the L1 error, `ece`, except for the correction. The square is unbiased until it is cut at 0:
    for a calibrated model the root is 0 about half of the time and 0.010 on average of 2,000 samples (`ece`: 0.026).

    >>> probs = torch.tensor([[0.7, 0.3]] * 4)
    >>> round(debiased_ece(probs, torch.tensor([0, 0, 1, 1])), 6)  # (0.7 - 0.5)^2 < 0.25 / 3
    0.0
    >>> round(debiased_ece(probs, torch.tensor([1, 1, 1, 1])), 6)
    0.7
    """
    outcomes = outcomes_of(probs, labels)
    bounds = _equal_width(outcomes.ranked, num_bins)
    count = _in_bins(outcomes.ranked.before, bounds)
    gap = _in_bins(outcomes.gap_before, bounds) / count.clamp(min=1)
    accuracy = _in_bins(outcomes.right_before, bounds) / count.clamp(min=1)
    terms = gap.square() - accuracy * (1 - accuracy) / (count - 1).clamp(min=1)
    squared = (count * terms).sum(dim=1) / outcomes.total
    return outcomes.result(squared.clamp(min=0).sqrt())


CLASSIFICATION: dict[str, Callable[..., Value]] = {
    "accuracy": accuracy,
    "nll": nll,
    "brier": brier,
    "ece": ece,
    "adaptive_ece": adaptive_ece,
    "debiased_ece": debiased_ece,
}

BINNED = frozenset({"ece", "adaptive_ece", "debiased_ece"})
"""Metrics that resampling makes larger on average: see `Bootstrap.interval`."""

BINNED_INTERVALS = "With few images ECE comes out too large; the interval does not correct this."
"""The remark to show beside these intervals."""
