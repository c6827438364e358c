"""Find the temperature of the smallest ECE among thousands, exactly, by branch and bound.

With s_k <= 0 the logits of a sample less their largest, its confidence at temperature T is 1 / sum_k exp(s_k / T). It
falls as T grows. So between two temperatures it lies between its values at both, and so does its bin. That bounds the
gap of every bin, and with it the ECE, from below. An interval whose bound exceeds an ECE that has been reached is left
out; all others are halved. The result is that of trying every temperature.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regmixup.metrics.calibration import ece_from_gaps
from regmixup.metrics.outcomes import equal_width_bins
from regmixup.metrics.pieces import map_pieces

_PIECE = 2**18  # float64 numbers that stay in the cache
_SLACK = 1e-9  # far more than what the rounding of sums adds to a bound


def smallest_ece(logits: Tensor, labels: Tensor, temperatures: Tensor, num_bins: int) -> tuple[int, float]:
    """Return the first place of the smallest ECE among rising temperatures (T,), float64, and that ECE.

    logits: (N, K). labels: (N,).
    """
    correct = (logits.argmax(dim=1) == labels).double()
    confidences: dict[int, Tensor] = {}
    errors: dict[int, float] = {}

    def evaluate(place: int) -> None:
        confidences[place] = confidence = confidence_at(logits, float(temperatures[place]))
        gaps = confidence.new_zeros(num_bins)
        gaps.scatter_add_(0, equal_width_bins(confidence, num_bins), confidence - correct)
        errors[place] = float(ece_from_gaps(gaps, len(correct)))

    last = len(temperatures) - 1
    evaluate(0)
    evaluate(last)
    intervals = [(0, last)]
    while intervals:
        halves = []
        for start, end in intervals:
            bound = least_ece(confidences[start], confidences[end], correct, num_bins)
            if end - start > 1 and bound <= min(errors.values()) + _SLACK:
                middle = (start + end) // 2
                evaluate(middle)
                halves += [(start, middle), (middle, end)]
        intervals = halves
        borders = {place for interval in intervals for place in interval}
        confidences = {place: confidences[place] for place in borders}
    best = min(errors, key=lambda place: (errors[place], place))
    return best, errors[best]


def confidence_at(logits: Tensor, temperature: float) -> Tensor:
    """Return the confidence of every sample, (N,) float64; in pieces, so that memory stays small."""

    def confidence(rows: slice) -> Tensor:
        part = logits[rows]
        shifted = part.double() - part.amax(dim=1, keepdim=True)
        return shifted.div_(temperature).exp_().sum(dim=1).reciprocal()

    return torch.cat(list(map_pieces(confidence, logits, _PIECE)))


def least_ece(high: Tensor, low: Tensor, correct: Tensor, num_bins: int) -> float:
    """Return a lower bound of the ECE where the confidence of each sample lies between `low` and `high`, (N,) each.

    A sample that may leave its bin adds to the gap of every bin on its way what it adds there, or nothing.

    >>> one = torch.ones(1, dtype=torch.float64)  # a sample that is right
    >>> round(least_ece(0.9 * one, 0.85 * one, one, num_bins=2), 3), least_ece(0.6 * one, 0.4 * one, one, num_bins=2)
    (0.1, 0.0)
    """
    first, last = equal_width_bins(low, num_bins), equal_width_bins(high, num_bins)
    least, most = low - correct, high - correct
    least = torch.where(first == last, least, least.clamp(max=0))
    most = torch.where(first == last, most, most.clamp(min=0))

    def by_bin(gap: Tensor) -> Tensor:
        """Add the gap of each sample to all bins from its first to its last."""
        steps = gap.new_zeros(num_bins + 1).index_add_(0, first, gap).index_add_(0, last + 1, gap, alpha=-1)
        return steps.cumsum(0)[:-1]

    gaps = torch.maximum(by_bin(least), -by_bin(most)).clamp(min=0)
    return float(gaps.sum()) / len(correct)
