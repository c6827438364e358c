"""Outcomes of probabilities (N, K) and labels (N,): the confidence of every prediction, and whether it is right.

Reading the table is the whole cost of a metric on many samples, so it is read once, in pieces, and only what has one
number per sample is kept. Each metric takes the table, or its `Outcomes`, which lets several metrics share a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regmixup.metrics.pieces import map_pieces, precise
from regmixup.metrics.ranked import Ranked, Value
from regmixup.types import as_tensor

_PIECE = 2**21
NUM_BINS = 15


@dataclass(frozen=True)
class Outcomes:
    """confidence: (N,) the largest probability, in the type of `probs` (float32 at least); correct: (N,) bool, True
    where the most probable class (the first one, if tied) is the label.

    Optional: nll: (N,) minus the logarithm of the label's probability, infinite where that is 0; brier: (N,) the
    squared distance to the one-hot label; weights: (R, N), how often each sample counts; None for once.
    """

    confidence: Tensor
    correct: Tensor
    nll: Tensor | None = None
    brier: Tensor | None = None
    weights: Tensor | None = None

    @classmethod
    def of(cls, probs: Tensor, labels: Tensor, *, terms: bool = False) -> Outcomes:
        """Read probabilities (N, K) and labels (N,), with nll and brier for `terms`.

        >>> Outcomes.of(torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([0, 1]))  # doctest: +ELLIPSIS
        Outcomes(confidence=tensor([0.9000, 0.5000]), correct=tensor([ True, False]), ...)
        """
        probs = as_tensor("probs", probs).detach()
        if probs.ndim != 2 or not probs.is_floating_point() or len(probs) == 0:
            raise ValueError(f"probs must be floating point (N, K), N >= 1, got {probs.dtype} {tuple(probs.shape)}")
        labels = check_labels(labels, len(probs), probs.shape[1])

        def read(rows: slice) -> Outcomes:
            part, classes = probs[rows], labels[rows]
            confidence, predicted = _largest(part)
            return cls(
                confidence,
                predicted == classes,
                nll=-precise(part.gather(1, classes[:, None]).squeeze(1)).log() if terms else None,
                brier=_distances_to_label(precise(part), classes) if terms else None,
            )

        return cls.joined(map_pieces(read, probs, _PIECE))

    @classmethod
    def joined(cls, parts: Iterable[Outcomes]) -> Outcomes:
        """Join the outcomes of consecutive samples."""
        parts = list(parts)

        def column(name: str) -> Any:
            tensors = [getattr(part, name) for part in parts]
            return torch.cat(tensors) if tensors[0] is not None else None

        return cls(column("confidence"), column("correct"), nll=column("nll"), brier=column("brier"))

    def weighted(self, weights: Tensor) -> Outcomes:
        """Return the same outcomes with weights (R, N)."""
        return replace(self, weights=weights)

    @cached_property
    def times(self) -> Tensor:
        """(R, N) float64: the weights, in the order given."""
        if self.weights is None:
            return precise(torch.ones_like(self.correct))[None]
        return precise(self.weights.to(self.correct.device))

    @cached_property
    def total(self) -> Tensor:
        """(R,): the sum of the weights, N in a resample."""
        return self.times.sum(dim=1)

    @cached_property
    def ranked(self) -> Ranked:
        """The samples by rising confidence: in that order every bin is a run of neighbours.

        The weighted sum over a bin is then the difference of two cumulative sums, whatever its edges.
        """
        samples = Ranked.of(self.confidence)
        return replace(samples, values=precise(samples.values), weights=self.weights)

    @cached_property
    def right_before(self) -> Tensor:
        """(R, N + 1): the weight of the right predictions among the 0, 1, ..., N least confident."""
        return self.ranked.cumulated(precise(self.correct[self.ranked.order]))

    @cached_property
    def gap_before(self) -> Tensor:
        """(R, N + 1): the weighted sum of confidence - correct over them."""
        return self.ranked.cumulated(self.ranked.values - precise(self.correct[self.ranked.order]))

    def mean(self, terms: Tensor) -> Value:
        """Return the weighted mean of terms (N,)."""
        if self.weights is None:
            return float(terms.mean())
        return self.times @ terms / self.total

    def result(self, values: Tensor) -> Value:
        """Return values (R,) as the result of a metric."""
        return float(values) if self.weights is None else values


def outcomes_of(probs: Tensor | Outcomes, labels: Tensor | None, *, terms: bool = False) -> Outcomes:
    """Return outcomes as they are, or those of probabilities and labels."""
    if isinstance(probs, Outcomes):
        return probs
    if labels is None:
        raise ValueError("labels must be given where probs are a table, got None")
    return Outcomes.of(probs, labels, terms=terms)


def check_labels(labels: Tensor, total: int, num_classes: int | None = None) -> Tensor:
    """Return labels as int64, one for each of `total` samples, of as many classes where these are given."""
    labels = as_tensor("labels", labels)
    if labels.shape != (total,) or labels.is_floating_point():
        raise ValueError(f"labels must be integers of shape ({total},), got {labels.dtype} {tuple(labels.shape)}")
    if num_classes is not None and total:
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= num_classes:
            unknown = " (-1: the class is unknown, or not one of the model's by name)" if low == -1 else ""
            raise ValueError(f"labels must lie in [0, {num_classes}), got values from {low} to {high}{unknown}")
    return labels.long()


def _largest(probs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest value of every row (N,) and its first place (N,); raise if a value is no probability."""
    probs = probs.to(torch.promote_types(probs.dtype, torch.float32))
    on_cpu = probs.device.type == "cpu"  # where NumPy's argmax of many classes takes half as long as torch's
    place = torch.from_numpy(probs.numpy().argmax(axis=1)) if on_cpu else probs.argmax(dim=1)
    largest = probs.gather(1, place[:, None]).squeeze(1)
    least, most = float(probs.amin()), float(largest.max())
    if not (least >= 0 and most <= 1 + 1e-3):  # NaN is neither; the slack is for rounding
        raise ValueError(f"probs must lie in [0, 1] (pass softmax(logits)), got values from {least:g} to {most:g}")
    return largest, place


def _distances_to_label(probs: Tensor, labels: Tensor) -> Tensor:
    """Return sum_k (p_ik - 1[y_i = k])^2, (N,)."""
    return probs.scatter_add(1, labels[:, None], probs.new_full((len(labels), 1), -1.0)).square_().sum(dim=1)


def equal_width_edges(num_bins: int, like: Tensor) -> Tensor:
    """Return j / B for j = 0..B, each the nearest number to it, with the type and device of `like`."""
    return torch.arange(num_bins + 1, dtype=like.dtype, device=like.device) / num_bins


def equal_width_bins(values: Tensor, num_bins: int) -> Tensor:
    """Return the bin of each value, 0 to B - 1, among B bins (lo, hi] of [0, 1]; 0 lies in the first.

    >>> equal_width_bins(torch.tensor([0.0, 0.5, 0.6, 1.0]), 2)
    tensor([0, 0, 1, 1])
    """
    return torch.bucketize(values, equal_width_edges(num_bins, values)).sub_(1).clamp_(0, num_bins - 1)
