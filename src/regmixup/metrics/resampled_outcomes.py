"""Accuracy and calibration of many resamples of one set of predictions at once.

The samples are sorted by confidence once. In that order every bin, of equal width or of equal mass, is a run of
neighbours, so a bin's weighted sums are differences of cumulative ones, whatever its edges. Each function here returns,
for every row of counts, what the metric of the same name returns for the samples repeated that often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regmixup.metrics.calibration import equal_mass_positions
from regmixup.metrics.calibration_variants import class_bins
from regmixup.metrics.ordering import precise, take_columns
from regmixup.metrics.outcomes import NUM_BINS, Outcomes, check_table, equal_width_edges, outcomes_of

_BLOCK = 2**22


class SortedOutcomes:
    """What the metrics need of probabilities (N, K) and labels (N,), or of their outcomes, with terms.

    right, nll, brier: (N,) in the order given; confidence, correct: (N,) from the least confident to the most, which
    `order` takes the samples to. table: probabilities and labels, which only the calibration error per class needs.
    """

    def __init__(self, probs: Tensor | Outcomes, labels: Tensor | None = None) -> None:
        self.table = check_table(probs, labels) if isinstance(probs, Tensor) and labels is not None else None
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
    def correct(self) -> Tensor:
        """(R, N + 1): how many of them are right."""
        return cumulative(self._ordered * self.sample.correct.to(torch.uint8), torch.int32)

    @cached_property
    def width_bounds(self) -> Tensor:
        """(B + 1,): how many samples lie below each edge of the bins of equal width."""
        confidence = self.sample.confidence
        bounds = torch.searchsorted(confidence, equal_width_edges(NUM_BINS, confidence), right=True)
        # Confidence 0 lies in the first bin, and one rounded to just above 1 in the last.
        bounds[0], bounds[-1] = 0, len(confidence)
        return bounds


def cumulative(rows: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """(R, N) -> (R, N + 1): the sums of the first 0, 1, ..., N columns."""
    found = torch.zeros(len(rows), rows.shape[1] + 1, dtype=dtype or rows.dtype, device=rows.device)
    torch.cumsum(rows, dim=1, dtype=found.dtype, out=found[:, 1:])
    return found


def accuracy(resampled: ResampledOutcomes) -> Tensor:
    return resampled.weights @ resampled.sample.right / resampled.counts.shape[1]


def nll(resampled: ResampledOutcomes) -> Tensor:
    terms = resampled.sample.nll
    impossible = torch.isinf(terms)
    value = resampled.weights @ terms.masked_fill(impossible, 0.0) / len(terms)
    return value.masked_fill((resampled.counts[:, impossible] > 0).any(dim=1), torch.inf) if impossible.any() else value


def brier(resampled: ResampledOutcomes) -> Tensor:
    return resampled.weights @ resampled.sample.brier / len(resampled.sample.brier)


def ece(resampled: ResampledOutcomes) -> Tensor:
    gap = resampled.gap[:, resampled.width_bounds].diff(dim=1)
    return gap.abs().sum(dim=1) / resampled.counts.shape[1]


def adaptive_ece(resampled: ResampledOutcomes) -> Tensor:
    """Edges are found anew in every resample, whose confidence at position p is the first with more than p drawn."""
    confidence = resampled.sample.confidence
    low, high, share = equal_mass_positions(len(confidence), NUM_BINS, confidence)
    wanted = torch.cat([low, high]).to(torch.int32).repeat(len(resampled.counts), 1)
    place = torch.searchsorted(resampled.drawn, wanted, right=True) - 1
    below, above = confidence[place].chunk(2, dim=1)
    bounds = torch.searchsorted(confidence, torch.lerp(below, above, share), right=True)
    gap = resampled.gap.gather(1, bounds).diff(dim=1)
    return gap.abs().sum(dim=1) / len(confidence)


def mce(resampled: ResampledOutcomes) -> Tensor:
    gap = resampled.gap[:, resampled.width_bounds].diff(dim=1)
    return (gap / _bin_counts(resampled).clamp(min=1)).abs().amax(dim=1)


def debiased_ece(resampled: ResampledOutcomes) -> Tensor:
    count = _bin_counts(resampled)
    full = count.clamp(min=1)
    gap = resampled.gap[:, resampled.width_bounds].diff(dim=1) / full
    right = resampled.correct[:, resampled.width_bounds].diff(dim=1) / full.to(gap.dtype)
    terms = gap.square() - right * (1 - right) / (count - 1).clamp(min=1)
    return ((count * terms).sum(dim=1) / resampled.counts.shape[1]).clamp(min=0).sqrt()


def classwise_ece(resampled: ResampledOutcomes) -> Tensor:
    """One column per class and bin, zero but for that bin's samples, makes the sums a matrix product."""
    assert resampled.sample.table is not None
    samples, classes = resampled.sample.table[0].shape
    index, gap = class_bins(*resampled.sample.table, NUM_BINS)
    step = max(1, _BLOCK // (samples * NUM_BINS))
    total = resampled.weights.new_zeros(len(resampled.weights))
    for first in range(0, classes, step):
        some = slice(first, min(first + step, classes))
        columns = gap.new_zeros(samples, (some.stop - first) * NUM_BINS)
        columns.scatter_(1, index[:, some] - first * NUM_BINS, gap[:, some])
        total += (resampled.weights @ columns).abs().sum(dim=1)
    return total / (classes * samples)


def _bin_counts(resampled: ResampledOutcomes) -> Tensor:
    return resampled.drawn[:, resampled.width_bounds].diff(dim=1)
