"""Outcomes of probabilities (N, K) and labels (N,): the confidence of every prediction, and whether it is right.

Reading the table is the whole cost of a metric on many samples, so it is read once, in pieces, and only what has one
number per sample is kept. Each metric takes the table, or its `Outcomes`, which lets several metrics share a pass.

Last, the errors under shift relative to those of a reference model: mCE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regmixup.metrics.ordering import pieces_of, precise
from regmixup.metrics.threads import in_order
from regmixup.types import as_tensor

_PIECE = 2**21
NUM_BINS = 15
Condition = tuple[str, int]


@dataclass(frozen=True)
class Outcomes:
    """confidence: (N,) the largest probability, in the type of `probs` (float32 at least); correct: (N,) bool, True
    where the most probable class (the first one, if tied) is the label.

    Optional: nll: (N,) minus the logarithm of the label's probability, infinite where that is 0; brier: (N,) the
    squared distance to the one-hot label; class_gaps: (K, B) the sums of p_ik - 1[y_i = k] over the samples whose
    probability of class k lies in bin b of B equal ones, (lo, hi], 0 in the first.
    """

    confidence: Tensor
    correct: Tensor
    nll: Tensor | None = None
    brier: Tensor | None = None
    class_gaps: Tensor | None = None

    @classmethod
    def of(cls, probs: Tensor, labels: Tensor, *, terms: bool = False, class_bins: int = 0) -> Outcomes:
        """Read probabilities (N, K) and labels (N,), with nll and brier for `terms`, and B = class_bins if > 0.

        >>> Outcomes.of(torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([0, 1]))  # doctest: +ELLIPSIS
        Outcomes(confidence=tensor([0.9000, 0.5000]), correct=tensor([ True, False]), ...)
        """
        probs, labels = check_table(probs, labels)

        def read(rows: slice) -> Outcomes:
            part, own = probs[rows], labels[rows]
            confidence, predicted, least = _largest(part)
            most = float(confidence.max())
            if not (least >= 0 and most <= 1 + 1e-3):  # NaN is neither; the slack is for rounding
                got = f"got values from {least:g} to {most:g}"
                raise ValueError(f"probs must lie in [0, 1] (pass softmax(logits)), {got}")
            return cls(
                confidence,
                predicted == own,
                nll=-precise(part.gather(1, own[:, None]).squeeze(1)).log() if terms else None,
                brier=minus_one_hot(precise(part), own).square_().sum(dim=1) if terms else None,
                class_gaps=_class_gaps(precise(part), own, class_bins) if class_bins else None,
            )

        return cls.joined(in_order(read, pieces_of(probs, _PIECE), probs.device))

    @classmethod
    def joined(cls, parts: Iterable[Outcomes]) -> Outcomes:
        """Join the outcomes of consecutive samples; `parts` are taken one by one."""
        columns: list[tuple[Tensor | None, ...]] = []
        gaps: Tensor | None = None
        for part in parts:
            columns.append((part.confidence, part.correct, part.nll, part.brier))
            if part.class_gaps is not None:
                gaps = part.class_gaps if gaps is None else gaps.add_(part.class_gaps)
        confidence, correct, *terms = zip(*columns, strict=True)
        nll, brier = (torch.cat(column) if None not in column else None for column in terms)
        return cls(torch.cat(confidence), torch.cat(correct), nll, brier, gaps)


def outcomes_of(
    probs: Tensor | Outcomes, labels: Tensor | None, *, terms: bool = False, class_bins: int = 0
) -> Outcomes:
    """Return outcomes as they are, or those of probabilities and labels."""
    if isinstance(probs, Outcomes):
        return probs
    if labels is None:
        raise ValueError("labels must be given where probs are a table, got None")
    return Outcomes.of(probs, labels, terms=terms, class_bins=class_bins)


def check_table(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return probabilities and labels as tensors of valid shape, type and range; the values of `probs` are not read."""
    probs = torch.as_tensor(probs).detach()
    if probs.ndim != 2 or not probs.is_floating_point():
        raise ValueError(f"probs must be floating point of shape (N, K), got {probs.dtype} {tuple(probs.shape)}")
    labels = check_labels(labels, len(probs), probs.shape[1])
    if len(probs) == 0:
        raise ValueError("probs must hold at least one sample, got 0")
    return probs, labels


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


def _largest(probs: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the largest value of every row (R,), its first place (R,), and the smallest value of all."""
    if probs.dtype in (torch.float16, torch.bfloat16):
        probs = probs.float()
    if probs.device.type != "cpu":
        return *probs.max(dim=1), float(probs.amin())
    # NumPy, because torch.max looks for value and place together, which takes three times as long.
    values = probs.numpy()
    place = torch.from_numpy(values.argmax(axis=1))
    return probs.gather(1, place[:, None]).squeeze(1), place, float(values.min())


def minus_one_hot(probs: Tensor, labels: Tensor) -> Tensor:
    """Return p_ik - 1[y_i = k], (N, K)."""
    return probs.scatter_add(1, labels[:, None], probs.new_full((len(labels), 1), -1.0))


def _class_gaps(probs: Tensor, labels: Tensor, num_bins: int) -> Tensor:
    """Return `Outcomes.class_gaps`. Few probabilities lie beyond the first bin; only those are searched for."""
    classes = probs.shape[1]
    beyond = probs > equal_width_edges(num_bins, probs)[1]
    indices = beyond.flatten().nonzero().squeeze(1)
    values = probs.flatten()[indices]
    bins = equal_width_bins(values, num_bins)
    sums = probs.new_zeros(classes * num_bins).index_add_(0, (indices % classes) * num_bins + bins, values)
    sums = sums.view(classes, num_bins)
    sums[:, 0] += probs.masked_fill(beyond, 0.0).sum(dim=0)
    own = equal_width_bins(probs.gather(1, labels[:, None]).squeeze(1), num_bins)
    return sums - torch.bincount(labels * num_bins + own, minlength=classes * num_bins).view_as(sums)


def equal_width_edges(num_bins: int, like: Tensor) -> Tensor:
    """Return j / B for j = 0..B, each the nearest number to it, with the type and device of `like`."""
    return torch.arange(num_bins + 1, dtype=like.dtype, device=like.device) / num_bins


def equal_width_bins(values: Tensor, num_bins: int) -> Tensor:
    """Return the bin of each value, 0 to B - 1, among B bins (lo, hi] of [0, 1]; 0 lies in the first.

    >>> equal_width_bins(torch.tensor([0.0, 0.5, 0.6, 1.0]), 2)
    tensor([0, 0, 1, 1])
    """
    return torch.bucketize(values, equal_width_edges(num_bins, values)).sub_(1).clamp_(0, num_bins - 1)


def corruption_errors(errors: Mapping[Condition, float], reference: Mapping[Condition, float]) -> dict[str, float]:
    """Return CE_c = sum_s E_cs / sum_s E^ref_cs for every corruption c (Hendrycks and Dietterich, 2019).

    errors, reference: the share of wrong predictions by (corruption, severity), of the model and of the reference model
    (AlexNet for the ImageNet-C of the literature), for the same conditions.

    >>> corruption_errors({("fog", 1): 0.1, ("fog", 2): 0.2}, {("fog", 1): 0.2, ("fog", 2): 0.4})
    {'fog': 0.5}
    """
    if not errors:
        raise ValueError("errors must hold at least one (corruption, severity), got none")
    unmatched = set(errors) ^ set(reference)
    if unmatched:
        raise ValueError(f"errors and reference must cover the same conditions, only one has {sorted(unmatched)}")
    found = {}
    for corruption in dict.fromkeys(name for name, _ in errors):
        own = [value for (name, _), value in errors.items() if name == corruption]
        theirs = [value for (name, _), value in reference.items() if name == corruption]
        if not sum(theirs) > 0:
            raise ValueError(f"reference must make errors under every corruption, got none under {corruption!r}")
        found[corruption] = sum(own) / sum(theirs)
    return found


def mean_corruption_error(errors: Mapping[Condition, float], reference: Mapping[Condition, float]) -> float:
    """Return the mCE, the plain mean of `corruption_errors` over the corruptions; 1 is as good as the reference.

    >>> mean_corruption_error({("fog", 1): 0.1, ("snow", 1): 0.4}, {("fog", 1): 0.2, ("snow", 1): 0.2})
    1.25
    """
    found = corruption_errors(errors, reference)
    return sum(found.values()) / len(found)
