"""Accuracy and calibration of probabilities (N, K) against labels (N,), in float64, exact on the whole set.

Each metric takes probabilities and labels, or their `Outcomes`, whose weights turn its value into R resampled ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regmixup.metrics.ordering import precise
from regmixup.metrics.outcomes import (
    NUM_BINS,
    Outcomes,
    SortedOutcomes,
    equal_width_bins,
    equal_width_edges,
    outcomes_of,
)
from regmixup.metrics.weights import Value

Binning = Literal["width", "interp", "split"]


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
    possible = outcomes.times @ terms.masked_fill(impossible, 0.0) / outcomes.total
    return outcomes.value(possible.masked_fill(drawn, torch.inf))


def brier(probs: Tensor | Outcomes, labels: Tensor | None = None) -> Value:
    """Return the mean squared distance to the one-hot label, summed over classes: between 0 and 2 for any K."""
    outcomes = outcomes_of(probs, labels, terms=True)
    assert outcomes.brier is not None
    return outcomes.mean(outcomes.brier)


@dataclass(frozen=True)
class _Bins:
    """Bins of samples sorted by confidence. edges: (R, B + 1) of confidence; bounds: (R, B + 1), how many of the sorted
    samples lie before each. R is 1 where no edge depends on the weights."""

    samples: SortedOutcomes
    edges: Tensor
    bounds: Tensor

    def sums(self, cumulated: Tensor) -> Tensor:
        """Return what each bin adds to one of the cumulative sums of the samples: (R, N + 1) -> (R, B)."""
        return cumulated.gather(1, self.bounds.expand(len(cumulated), -1)).diff(dim=1)

    @property
    def count(self) -> Tensor:
        return self.sums(self.samples.drawn)

    @property
    def gap(self) -> Tensor:
        """(R, B): n_b (confidence_b - accuracy_b), the sum of confidence - correct."""
        return self.sums(self.samples.gap)

    @property
    def right(self) -> Tensor:
        return self.sums(self.samples.right)


def _bins(outcomes: Outcomes, num_bins: int, binning: Binning) -> _Bins:
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    samples = outcomes.by_confidence
    confidence = samples.confidence
    if binning == "width":
        edges = equal_width_edges(num_bins, confidence)[None]
        bounds = torch.searchsorted(confidence, edges, right=True)
        # Confidence 0 lies in the first bin, and one rounded to just above 1 in the last.
        bounds[:, 0], bounds[:, -1] = 0, len(confidence)
    elif binning == "interp":
        last = outcomes.total[:, None] - 1
        steps = [torch.linspace(0, total, num_bins + 1, dtype=last.dtype) for total in outcomes.total.tolist()]
        position = torch.stack(steps).to(last.device).minimum(last)
        low = position.floor()
        # The sample at a position is the first up to which more weight lies.
        below, above = (
            confidence[torch.searchsorted(samples.drawn, place, right=True) - 1]
            for place in (low, (low + 1).minimum(last))
        )
        edges = torch.lerp(below, above, position - low)
        bounds = torch.searchsorted(confidence, edges, right=True)
    elif binning == "split":
        size, longer = outcomes.total[:, None] // num_bins, outcomes.total[:, None] % num_bins
        runs = torch.arange(num_bins + 1, device=confidence.device)
        bounds = torch.searchsorted(samples.drawn, runs * size + runs.minimum(longer))
        edges = confidence[torch.cat([bounds[:, :1], bounds[:, 1:] - 1], dim=1).clamp(min=0)]
    else:
        raise ValueError(f"binning must be 'width', 'interp' or 'split', got {binning!r}")
    return _Bins(samples, edges, bounds)


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


def reliability(
    probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = NUM_BINS, binning: Binning = "width"
) -> Reliability:
    """Bin samples by confidence, the largest probability.

    "width": B equal intervals (lo, hi] of [0, 1]; confidence 0 falls in the first.
    "interp": equal mass as in the paper's code: edge j is the sorted confidences interpolated at position j N / B.
        The first interval is open on the left, so samples at the smallest confidence fall in no bin; tied samples go
        to the first bin whose upper edge they reach.
    "split": the sorted samples cut into B runs whose lengths differ by at most one.
    """
    outcomes = outcomes_of(probs, labels)
    assert outcomes.weights is None, "a diagram is of samples that count once"
    bins = _bins(outcomes, num_bins, binning)
    count = bins.count[0]
    accuracy = bins.right[0] / count
    return Reliability(
        bins.edges[0], count.long(), bins.gap[0] / count + accuracy, accuracy, total=len(outcomes.correct)
    )


def ece(probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = NUM_BINS) -> Value:
    """Return the expected calibration error over equal-width bins (lo, hi]: sum_b n_b / N |confidence_b - accuracy_b|.

    >>> round(ece(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 6)
    0.3
    """
    return _mean_gap(outcomes_of(probs, labels), num_bins, "width")


def adaptive_ece(
    probs: Tensor | Outcomes,
    labels: Tensor | None = None,
    *,
    num_bins: int = NUM_BINS,
    binning: Literal["interp", "split"] = "interp",
) -> Value:
    """Return the calibration error over bins of equal mass (AdaECE); `reliability` describes both binnings.

    Of resamples, the edges are those of each; a sample drawn several times stays in one run of "split".
    """
    if binning not in ("interp", "split"):
        raise ValueError(f"binning must be 'interp' or 'split', got {binning!r}")
    return _mean_gap(outcomes_of(probs, labels), num_bins, binning)


def _mean_gap(outcomes: Outcomes, num_bins: int, binning: Binning) -> Value:
    gaps = _bins(outcomes, num_bins, binning).gap
    return outcomes.value(gaps.abs().sum(dim=1) / outcomes.total)


def ece_from_gaps(gaps: Tensor, total: int) -> Tensor:
    """Return the calibration error from gaps (..., B), the sums over every bin of confidence - correct: (...).

    n_b |confidence_b - accuracy_b| is |sum of confidence - correct over bin b|: the form of `ece` that needs no
    division by counts, for many errors at once. The temperature search and the choice of a prior use it.
    """
    return gaps.abs().sum(dim=-1) / total


def ece_of_confidence(confidence: Tensor, correct: Tensor, num_bins: int = NUM_BINS) -> Tensor:
    """Return the ECE of each of R confidences of the same predictions, as at R temperatures: (R, N) -> (R,).

    confidence: (R, N) float64, the largest probability. correct: (N,) float64, 1 where its class is the label.

    >>> ece_of_confidence(torch.tensor([[0.8, 0.8], [0.5, 0.5]]).double(), torch.tensor([1.0, 0.0]).double())
    tensor([0.3000, 0.0000], dtype=torch.float64)
    """
    gaps = torch.zeros(len(confidence), num_bins, dtype=torch.float64, device=confidence.device)
    gaps.scatter_add_(1, equal_width_bins(confidence, num_bins), confidence - correct)
    return ece_from_gaps(gaps, confidence.shape[1])


def mce(
    probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = NUM_BINS, binning: Binning = "width"
) -> Value:
    """Return the maximum calibration error, max_b |confidence_b - accuracy_b| (Naeini et al., 2015), empty bins aside.

    >>> round(mce(torch.tensor([[0.8, 0.2], [0.6, 0.4]]), torch.tensor([0, 0])), 6)
    0.4
    """
    outcomes = outcomes_of(probs, labels)
    bins = _bins(outcomes, num_bins, binning)
    return outcomes.value((bins.gap / bins.count.clamp(min=1)).abs().amax(dim=1))


def debiased_ece(
    probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = NUM_BINS, binning: Binning = "width"
) -> Value:
    """Return the root of the debiased squared calibration error (Bröcker, 2012; Kumar et al., 2019).

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
    outcomes = outcomes_of(probs, labels)
    bins = _bins(outcomes, num_bins, binning)
    count = bins.count
    gap, accuracy = bins.gap / count.clamp(min=1), bins.right / count.clamp(min=1)
    terms = gap.square() - accuracy * (1 - accuracy) / (count - 1).clamp(min=1)
    return outcomes.value(((count * terms).sum(dim=1) / outcomes.total).clamp(min=0).sqrt())


def classwise_ece(probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = NUM_BINS) -> Value:
    """Return the calibration error of every class's probability, averaged over classes (Kull et al., 2019).

        1/K sum_k sum_b |sum_{i in B_kb} (p_ik - 1[y_i = k])| / N

    B_kb: the samples whose probability of class k lies in bin b, (lo, hi] of equal width, 0 in the first. `Outcomes`
    must have been read with `class_bins`, and with the weights, as these sums over samples are all they keep.

    >>> round(classwise_ece(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 6)
    0.3
    """
    if num_bins < 1:
        raise ValueError(f"num_bins must be at least 1, got {num_bins}")
    outcomes = outcomes_of(probs, labels, class_bins=num_bins)
    gaps = outcomes.class_gaps
    assert gaps is not None
    return outcomes.value(gaps.abs().sum(dim=(1, 2)) / (gaps.shape[1] * outcomes.total))
