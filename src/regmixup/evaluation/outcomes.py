"""What metrics need of probabilities (N, K) and labels (N,): how sure each prediction was, and whether it was right.

Reading the table is the whole cost of a metric on many samples, so it is read once, in pieces, and only what has one
number per sample is held in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regmixup.evaluation.ordering import precise
from regmixup.threads import each_piece

_PIECE = 2**21


def check_table(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities and labels as tensors of the right shape, type and range; the values of `probs` are not read."""
    probs, labels = torch.as_tensor(probs).detach(), torch.as_tensor(labels)
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
    return probs, labels.long()


def check_range(least: float, most: float) -> None:
    """Raise unless the smallest and the largest value lie in [0, 1], up to rounding; NaN does not."""
    if not (least >= 0 and most <= 1 + 1e-3):
        raise ValueError(f"probs must lie in [0, 1] (pass softmax(logits)), got values from {least:g} to {most:g}")


def pieces(probs: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Consecutive rows, at most 2**21 numbers at a time, checked to be probabilities."""
    rows = max(1, _PIECE // probs.shape[1])
    for part, own in zip(probs.split(rows), labels.split(rows), strict=True):
        check_range(*map(float, part.aminmax()))
        yield part, own


@dataclass(frozen=True)
class Outcomes:
    """confidence: (N,) the largest probability, in the type of `probs` (float32 at least); correct: (N,) bool, whether
    the most probable class (the first one, if tied) is the label."""

    confidence: Tensor
    correct: Tensor

    @classmethod
    def of(cls, probs: Tensor, labels: Tensor) -> Outcomes:
        """Read off probabilities (N, K) and labels (N,).

        >>> Outcomes.of(torch.tensor([[0.9, 0.1], [0.5, 0.5]]), torch.tensor([0, 1]))
        Outcomes(confidence=tensor([0.9000, 0.5000]), correct=tensor([ True, False]))
        """
        probs, labels = check_table(probs, labels)
        found = each_piece(_read, probs.split(max(1, _PIECE // probs.shape[1])))
        confidence, predicted, least = (torch.cat(column) for column in zip(*found, strict=True))
        check_range(float(least.min()), float(confidence.max()))
        return cls(confidence, predicted == labels)


def _read(probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest value of every row (R,), its first place (R,), and the smallest value of all (1,)."""
    if probs.dtype in (torch.float16, torch.bfloat16):
        probs = probs.float()
    if probs.device.type != "cpu":
        return *probs.max(dim=1), probs.amin().reshape(1)
    # NumPy, because torch.max looks for value and place together, which takes three times as long.
    values = probs.numpy()
    place = values.argmax(axis=1)
    top = values.reshape(-1).take(place + values.shape[1] * np.arange(len(values)))
    return torch.from_numpy(top), torch.from_numpy(place), torch.from_numpy(values.min(keepdims=True)[0])


def brier_terms(probs: Tensor, labels: Tensor) -> Tensor:
    """(N,): the squared distance of every row to its one-hot label."""
    found = []
    for part, own in pieces(*check_table(probs, labels)):
        part = precise(part)
        gap = part.scatter_add(1, own[:, None], part.new_full((len(own), 1), -1.0))
        found.append(gap.square_().sum(dim=1))
    return torch.cat(found)


def nll_terms(probs: Tensor, labels: Tensor) -> Tensor:
    """(N,): minus the logarithm of the label's probability; infinite where that is 0."""
    found = [part.gather(1, own[:, None]).squeeze(1) for part, own in pieces(*check_table(probs, labels))]
    return -precise(torch.cat(found)).log()
