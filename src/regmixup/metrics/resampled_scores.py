"""Detection metrics of many resamples of in- and out-of-distribution scores at once.

Both sets are sorted once, and each sample finds its place in the other set once; a resample then only changes how many
samples are drawn before a place, which cumulative counts say. Each function here returns, for every row of counts, what
the metric of the same name returns for the samples repeated that often.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regmixup.metrics.detection import needed_count
from regmixup.metrics.ordering import positions, precise, take_columns
from regmixup.metrics.resampled_outcomes import cumulative

TPR = 0.95


class SortedScores:
    """One set of scores (N,) in ascending order, with the places of its values in itself and in another set (M,).

    own, other: (below, below_or_tied) each, how many samples of that set are < and <= each of the values, (N,).
    """

    def __init__(self, scores: Tensor, other: Tensor) -> None:
        self.values, self.order = scores.sort()
        self.own = positions(self.values, self.values)
        self.other = positions(other.sort().values, self.values)
        self.tied = bool((self.other[0] != self.other[1]).any())


@dataclass(frozen=True)
class ResampledScores:
    """Two sets of scores and some resamples of each: counts (R, N) and (R, M) in the order the scores were given."""

    inside: SortedScores
    outside: SortedScores
    inside_counts: Tensor
    outside_counts: Tensor

    @cached_property
    def inside_ordered(self) -> Tensor:
        return take_columns(self.inside_counts, self.inside.order)

    @cached_property
    def outside_ordered(self) -> Tensor:
        return take_columns(self.outside_counts, self.outside.order)

    @cached_property
    def inside_drawn(self) -> Tensor:
        """(R, N + 1): how many samples are drawn among those with the 0, 1, ..., N smallest scores."""
        return cumulative(self.inside_ordered, torch.int32)

    @cached_property
    def outside_drawn(self) -> Tensor:
        """(R, M + 1)."""
        return cumulative(self.outside_ordered, torch.int32)


def auroc(resampled: ResampledScores) -> Tensor:
    """Counted from the smaller set, whose samples each look up one place in the other."""
    sizes = len(resampled.inside.values), len(resampled.outside.values)
    if sizes[0] <= sizes[1]:
        won = 2 * sizes[0] * sizes[1] - _pairs(resampled.inside, resampled.inside_ordered, resampled.outside_drawn)
    else:
        won = _pairs(resampled.outside, resampled.outside_ordered, resampled.inside_drawn)
    return precise(won) / (2 * sizes[0] * sizes[1])


def _pairs(scores: SortedScores, counts: Tensor, other_drawn: Tensor) -> Tensor:
    """Twice the number of drawn pairs in which the other sample is smaller, a tie counting once."""
    below = take_columns(other_drawn, scores.other[0])
    twice = below + (take_columns(other_drawn, scores.other[1]) if scores.tied else below)
    return twice.mul_(counts).sum(dim=1)


def aupr(resampled: ResampledScores) -> Tensor:
    """At the score of each out-of-distribution sample: found are those of its kind with at least that score."""
    inside, outside = resampled.inside.values, resampled.outside
    found = len(outside.values) - take_columns(resampled.outside_drawn, outside.own[0])
    false = len(inside) - take_columns(resampled.inside_drawn, outside.other[0])
    return _mean_precision(resampled.outside_ordered, found, false)


def aupr_id(resampled: ResampledScores) -> Tensor:
    found = take_columns(resampled.inside_drawn, resampled.inside.own[1])
    false = take_columns(resampled.outside_drawn, resampled.inside.other[1])
    return _mean_precision(resampled.inside_ordered, found, false)


def _mean_precision(counts: Tensor, found: Tensor, false: Tensor) -> Tensor:
    # Where nothing is found or flagged nothing is drawn either: 0 / 0 counts 0 times.
    precision = precise(found) / false.add_(found).clamp_(min=1)
    return precision.mul_(counts).sum(dim=1) / counts.shape[1]


def fpr_at_tpr(resampled: ResampledScores) -> Tensor:
    inside, total = resampled.inside, len(resampled.outside.values)
    needed = needed_count(TPR, len(inside.values))
    threshold = _place(resampled.inside_drawn, needed - 1)
    accepted = resampled.outside_drawn.gather(1, inside.other[1][threshold][:, None])
    return precise(accepted.squeeze(1)) / total


def fpr_at_tpr_ood(resampled: ResampledScores) -> Tensor:
    outside, total = resampled.outside, len(resampled.inside.values)
    spared = len(outside.values) - needed_count(TPR, len(outside.values))
    threshold = _place(resampled.outside_drawn, spared)
    missed = resampled.inside_drawn.gather(1, outside.other[0][threshold][:, None])
    return precise(total - missed.squeeze(1)) / total


def _place(drawn: Tensor, position: int) -> Tensor:
    """(R,): the sorted sample at this position, from 0, of every resample: the first with more than that drawn."""
    wanted = torch.full((len(drawn), 1), position, dtype=drawn.dtype, device=drawn.device)
    return torch.searchsorted(drawn, wanted, right=True).squeeze(1) - 1
