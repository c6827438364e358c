"""Accuracy and calibration of probabilities (N, K) against labels (N,), in float64, exact on the whole set.

Each metric takes probabilities and labels, or their `Outcomes`. Beside it stands its resampled form, `resampled_*`,
which returns (R,) values: for each of R resamples, what the metric returns for the samples repeated that often.

For resampling, the samples are sorted by confidence once. In that order every bin, of equal width or of equal mass, is
a run of neighbours, so a bin's weighted sums are differences of cumulative sums, whatever its edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from regmixup.metrics.ordering import cumulative, precise, sorted_pairs, sorted_values, take_columns
from regmixup.metrics.outcomes import (
    NUM_BINS,
    Outcomes,
    check_table,
    equal_width_bins,
    equal_width_edges,
    minus_one_hot,
    outcomes_of,
)

Binning = Literal["width", "interp", "split"]
_BLOCK = 2**22


class SortedOutcomes:
    """Sorted inputs of the resampled metrics: of probabilities (N, K) and labels (N,), or of their `Outcomes`.

    right, nll, brier: (N,) in the order given; confidence, correct: (N,) from the least confident to the most, the
    samples taken in `order`. table: probabilities and labels, which only the calibration error per class needs.
    """

    def __init__(self, probs: Tensor | Outcomes, labels: Tensor | None = None) -> None:
        self.table = None if isinstance(probs, Outcomes) or labels is None else check_table(probs, labels)
        outcomes = outcomes_of(probs, labels, terms=True)
        assert outcomes.nll is not None
        assert outcomes.brier is not None
        self.nll, self.brier = outcomes.nll, outcomes.brier
        self.right = precise(outcomes.correct)
        self.confidence, self.order = precise(outcomes.confidence).sort()
        self.correct = self.right[self.order]


@dataclass(frozen=True)
class ResampledOutcomes:
    """A set of predictions and some resamples of it: counts (R, N) in the order the predictions were given."""

    sample: SortedOutcomes
    counts: Tensor

    @cached_property
    def weights(self) -> Tensor:
        return self.counts.to(self.sample.confidence.dtype)

    @cached_property
    def _ordered(self) -> Tensor:
        """The counts in order of confidence."""
        return take_columns(self.counts, self.sample.order)

    @cached_property
    def drawn(self) -> Tensor:
        """(R, N + 1): how many samples are drawn among the 0, 1, ..., N least confident."""
        return cumulative(self._ordered, torch.int32)

    @cached_property
    def gap(self) -> Tensor:
        """(R, N + 1): the sum of confidence - correct over them."""
        return cumulative(self._ordered * (self.sample.confidence - self.sample.correct))

    @cached_property
    def right(self) -> Tensor:
        """(R, N + 1): how many of them are right."""
        return cumulative(self._ordered * self.sample.correct.to(torch.uint8), torch.int32)

    @cached_property
    def _width_bounds(self) -> Tensor:
        """(B + 1,): how many samples lie below each edge of the bins of equal width."""
        confidence = self.sample.confidence
        bounds = torch.searchsorted(confidence, equal_width_edges(NUM_BINS, confidence), right=True)
        # Confidence 0 lies in the first bin, and one rounded to just above 1 in the last.
        bounds[0], bounds[-1] = 0, len(confidence)
        return bounds

    def by_bin(self, sums: Tensor) -> Tensor:
        """Return what each bin of equal width adds to one of the sums above, (R, N + 1) -> (R, B)."""
        return sums[:, self._width_bounds].diff(dim=1)


def accuracy(probs: Tensor | Outcomes, labels: Tensor | None = None) -> float:
    """Return the share of samples whose most probable class (the first one, if tied) is the label.

    >>> accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
    0.5
    """
    return float(precise(outcomes_of(probs, labels).correct).mean())


def resampled_accuracy(resampled: ResampledOutcomes) -> Tensor:
    return resampled.weights @ resampled.sample.right / resampled.counts.shape[1]


def nll(probs: Tensor | Outcomes, labels: Tensor | None = None) -> float:
    """Return the mean negative log-likelihood, in nats; infinite if a label has probability 0 (nothing is clipped)."""
    terms = outcomes_of(probs, labels, terms=True).nll
    assert terms is not None
    return float(terms.mean())


def resampled_nll(resampled: ResampledOutcomes) -> Tensor:
    terms = resampled.sample.nll
    impossible = torch.isinf(terms)
    value = resampled.weights @ terms.masked_fill(impossible, 0.0) / len(terms)
    return value.masked_fill((resampled.counts[:, impossible] > 0).any(dim=1), torch.inf)


def brier(probs: Tensor | Outcomes, labels: Tensor | None = None) -> float:
    """Return the mean squared distance to the one-hot label, summed over classes: between 0 and 2 for any K."""
    terms = outcomes_of(probs, labels, terms=True).brier
    assert terms is not None
    return float(terms.mean())


def resampled_brier(resampled: ResampledOutcomes) -> Tensor:
    return resampled.weights @ resampled.sample.brier / len(resampled.sample.brier)


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
        index = equal_width_bins(confidence, num_bins).add_(1)
    elif binning == "interp":
        ordered = precise(sorted_values(outcomes.confidence))
        low, high, share = _equal_mass_positions(len(ordered), num_bins, ordered)
        edges = torch.lerp(ordered[low], ordered[high], share)
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


def run_ends(total: int, num_bins: int) -> list[int]:
    """Return where B runs of `total` samples end, from 0: the first total mod B runs have one sample more.

    >>> run_ends(8, 3)
    [0, 3, 6, 8]
    """
    size, longer = divmod(total, num_bins)
    return [j * size + min(j, longer) for j in range(num_bins + 1)]


def ece(probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = 15) -> float:
    """Return the expected calibration error over equal-width bins (lo, hi]: sum_b n_b / N |confidence_b - accuracy_b|.

    >>> round(ece(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1])), 6)
    0.3
    """
    return reliability(probs, labels, num_bins=num_bins).error


def ece_from_gaps(gaps: Tensor, total: int) -> Tensor:
    """Return the calibration error from gaps (..., B), the sums over every bin of confidence - correct: (...).

    n_b |confidence_b - accuracy_b| is |sum of confidence - correct over bin b|: the form of `ece` that needs no
    division by counts, for many errors at once. Resampling, the temperature search and the choice of a prior use it.
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


def resampled_ece(resampled: ResampledOutcomes) -> Tensor:
    return ece_from_gaps(resampled.by_bin(resampled.gap), resampled.counts.shape[1])


def adaptive_ece(
    probs: Tensor | Outcomes,
    labels: Tensor | None = None,
    *,
    num_bins: int = 15,
    binning: Literal["interp", "split"] = "interp",
) -> float:
    """Return the calibration error over bins of equal mass (AdaECE); `reliability` describes both binnings."""
    if binning not in ("interp", "split"):
        raise ValueError(f"binning must be 'interp' or 'split', got {binning!r}")
    return reliability(probs, labels, num_bins=num_bins, binning=binning).error


def resampled_adaptive_ece(resampled: ResampledOutcomes) -> Tensor:
    """Find the edges anew in every resample, whose confidence at position p is the first with more than p drawn."""
    confidence = resampled.sample.confidence
    low, high, share = _equal_mass_positions(len(confidence), NUM_BINS, confidence)
    wanted = torch.cat([low, high]).to(torch.int32).repeat(len(resampled.counts), 1)
    place = torch.searchsorted(resampled.drawn, wanted, right=True) - 1
    below, above = confidence[place].chunk(2, dim=1)
    bounds = torch.searchsorted(confidence, torch.lerp(below, above, share), right=True)
    return ece_from_gaps(resampled.gap.gather(1, bounds).diff(dim=1), len(confidence))


def _equal_mass_positions(total: int, num_bins: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, of the positions j N / B, j = 0..B, the last clamped to N - 1: the integers below and above, and the
    share of the way between them."""
    position = torch.linspace(0, total, num_bins + 1, dtype=like.dtype, device=like.device).clamp(max=total - 1)
    low = position.floor().long()
    return low, (low + 1).clamp(max=total - 1), position - low


def mce(
    probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = 15, binning: Binning = "width"
) -> float:
    """Return the maximum calibration error, max_b |confidence_b - accuracy_b| (Naeini et al., 2015), empty bins aside.

    >>> round(mce(torch.tensor([[0.8, 0.2], [0.6, 0.4]]), torch.tensor([0, 0])), 6)
    0.4
    """
    return float(reliability(probs, labels, num_bins=num_bins, binning=binning).gap.max())


def resampled_mce(resampled: ResampledOutcomes) -> Tensor:
    return (resampled.by_bin(resampled.gap) / resampled.by_bin(resampled.drawn).clamp(min=1)).abs().amax(dim=1)


def debiased_ece(
    probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = 15, binning: Binning = "width"
) -> float:
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
    diagram = reliability(probs, labels, num_bins=num_bins, binning=binning)
    terms = _debiased(diagram.gap, torch.nan_to_num(diagram.accuracy), diagram.count)
    return max(0.0, float((diagram.count * terms).sum() / diagram.total)) ** 0.5


def resampled_debiased_ece(resampled: ResampledOutcomes) -> Tensor:
    count = resampled.by_bin(resampled.drawn)
    full = count.clamp(min=1)
    gap = resampled.by_bin(resampled.gap) / full
    terms = _debiased(gap, resampled.by_bin(resampled.right) / full.to(gap.dtype), count)
    return ((count * terms).sum(dim=1) / resampled.counts.shape[1]).clamp(min=0).sqrt()


def _debiased(gap: Tensor, accuracy: Tensor, count: Tensor) -> Tensor:
    """Return the bracket of the formula of `debiased_ece`, of every bin."""
    return gap.square() - accuracy * (1 - accuracy) / (count - 1).clamp(min=1)


def classwise_ece(probs: Tensor | Outcomes, labels: Tensor | None = None, *, num_bins: int = 15) -> float:
    """Return the calibration error of every class's probability, averaged over classes (Kull et al., 2019).

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


def resampled_classwise_ece(resampled: ResampledOutcomes) -> Tensor:
    """Compute the sums as a matrix product: one column per class and bin, zero but for that bin's samples."""
    if resampled.sample.table is None:
        raise ValueError("classwise_ece must be resampled with probs (N, K) and labels (N,), got Outcomes")
    probs, labels = precise(resampled.sample.table[0]), resampled.sample.table[1]
    samples, classes = probs.shape
    index, gap = equal_width_bins(probs, NUM_BINS), minus_one_hot(probs, labels)
    index += torch.arange(classes, device=probs.device) * NUM_BINS
    step = max(1, _BLOCK // (samples * NUM_BINS))
    total = resampled.weights.new_zeros(len(resampled.weights))
    for first in range(0, classes, step):
        some = slice(first, min(first + step, classes))
        columns = gap.new_zeros(samples, (some.stop - first) * NUM_BINS)
        columns.scatter_(1, index[:, some] - first * NUM_BINS, gap[:, some])
        total += (resampled.weights @ columns).abs().sum(dim=1)
    return total / (classes * samples)
