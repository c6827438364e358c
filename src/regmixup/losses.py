"""Losses of soft targets, and what every objective does with them.

An objective's field `loss` is None, which is cross-entropy, or a callable from logits (N, K) and soft targets (N, K) to
one value per image, (N,). `CrossEntropy` and `Focal` are such callables that a configuration can record, and so is a
class of your own derived from `Loss`. Any other callable works in a training loop of your own.

The loss of a batch is the mean of these values: it divides by N. torch's mean over *class indices* with class weights
divides by the sum of the weights of the batch's labels instead, so it is N / sum(w_y) times ours; torch's mean over
soft targets divides by N, as here.

>>> logits, y = torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1])
>>> ours = CrossEntropy(weight=(1.0, 3.0))(logits, F.one_hot(y, 2).float()).mean()
>>> theirs = F.cross_entropy(logits, y, weight=torch.tensor([1.0, 3.0]))
>>> round(ours.item(), 4), round(theirs.item(), 4)  # the sum of the weighted losses over 2, and over 1 + 3
(1.1032, 0.5516)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.config import check_number
from regmixup.mixing import can_look, full_precision, repeat

__all__ = ["LOSSES", "CrossEntropy", "Focal", "Loss"]

_NO_LABEL = -(2**40)  # torch would silently skip labels of -100, its default for "ignore"


@dataclass(frozen=True)
class Loss(ABC):
    """Base of the losses that a configuration can record: a frozen dataclass whose fields are its hyper-parameters."""

    @abstractmethod
    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each image, (N,). logits: (N, K). targets: (N, K), rows that sum to 1."""


LossLike = Loss | Callable[[Tensor, Tensor], Tensor]
"""What an objective's field `loss` takes."""


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Return -sum_c w_c t'_c log p_c, p the softmax of the logits and t' = (1 - s) t + s / K."""

    weight: tuple[float, ...] | None = None
    """w, one number >= 0 per class; None weighs all classes by 1. The mean over the batch divides by N, not by the sum
    of the labels' weights."""
    smoothing: float = 0.0
    """s, from 0 to below 1."""

    def __post_init__(self) -> None:
        check_number("smoothing", self.smoothing, least=0, below=1)
        if self.weight is not None:
            if not isinstance(self.weight, tuple):
                raise ValueError(f"weight must be a tuple of one number per class, got {self.weight!r}")
            for number in self.weight:
                check_number("weight", number, least=0)

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        weight = None
        if self.weight is not None:
            if len(self.weight) != logits.shape[1]:
                raise ValueError(f"weight must hold one number per class, {logits.shape[1]}, got {len(self.weight)}")
            weight = _constant(self.weight, logits.dtype, logits.device)
        return F.cross_entropy(logits, targets, weight, reduction="none", label_smoothing=self.smoothing)


@dataclass(frozen=True)
class Focal(Loss):
    """Return -sum_c t_c (1 - p_c)^gamma log p_c, p the softmax of the logits (Lin et al., 2017).

    >>> Focal(2.0)(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))  # (1/2)^2 log 2
    tensor([0.1733])
    """

    gamma: float = 2.0
    """>= 0: how fast well classified images lose weight; 0 is cross-entropy."""

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, least=0)

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_probs = logits.log_softmax(dim=1)
        # Above 0, because the power's gradient is infinite at p = 1 for gamma below 1.
        rest = (-torch.expm1(log_probs)).clamp(min=torch.finfo(log_probs.dtype).tiny)
        return -(targets * rest**self.gamma * log_probs).sum(dim=1)


LOSSES: dict[str, type[Loss]] = {"cross_entropy": CrossEntropy, "focal": Focal}
"""The losses that the command line knows, by name."""


def image_losses(logits: Tensor, y: Tensor, loss: LossLike | None = None, smoothing: float = 0.0) -> Tensor:
    """Return the loss of each image, (m N,), in at least float32.

    logits: (m N, K), for m >= 1 versions of the N images. y: (N,) class indices or (N, K) probabilities.
    """
    check_labels(y, logits.shape[1])
    logits, y = full_precision(logits), repeat(y, len(logits) // len(y))
    if loss is None:
        return cross_entropy(logits, y, smoothing)
    targets = soft_targets(y, logits)
    return _applied(loss, logits, (1 - smoothing) * targets + smoothing / logits.shape[1] if smoothing else targets)


def mixed_losses(logits: Tensor, y: Tensor, other: Tensor, lam: Tensor, loss: LossLike | None = None) -> Tensor:
    """Return the loss of each mixed image against lam y + (1 - lam) other, (m N,).

    logits: (m N, K). y: the labels of the N images. other: those of the m N partners. lam: () or (m N,).
    """
    check_labels(y, logits.shape[1])
    logits, y = full_precision(logits), repeat(y, len(logits) // len(y))
    weight = lam.to(logits.dtype)
    if loss is None:  # cross-entropy is linear in the label
        return weight * cross_entropy(logits, y) + (1 - weight) * cross_entropy(logits, other)
    weight = weight.reshape(-1, 1)
    return _applied(loss, logits, weight * soft_targets(y, logits) + (1 - weight) * soft_targets(other, logits))


def cross_entropy(logits: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of each image, (N,), in at least float32, without a look at the labels' values."""
    logits = full_precision(logits)
    target = y.to(logits.dtype) if y.ndim == 2 else y
    return F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing, ignore_index=_NO_LABEL)


def soft_targets(y: Tensor, logits: Tensor) -> Tensor:
    """Return labels as probabilities (N, K) of the logits' type and number of classes."""
    return (y if y.ndim == 2 else F.one_hot(y, logits.shape[1])).to(logits.dtype)


def check_labels(y: Tensor, num_classes: int) -> None:
    """Check that indices lie in [0, num_classes), or that probabilities have num_classes columns and sum to 1."""
    if y.ndim == 2:
        if y.shape[1] != num_classes:
            raise ValueError(f"y must have one probability per class, {num_classes}, got shape {tuple(y.shape)}")
        if can_look(y) and not (bool((y >= 0).all()) and bool(((y.double().sum(dim=1) - 1).abs() < 0.02).all())):
            raise ValueError("y must hold probabilities: no value below 0 and rows that sum to 1")
    elif can_look(y):
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= num_classes:
            raise ValueError(f"y must hold labels in [0, {num_classes}), got values from {low} to {high}")


def check_loss(loss: object) -> None:
    """Check what was given as an objective's `loss`."""
    if loss is not None and (isinstance(loss, type) or not callable(loss)):
        raise ValueError(
            f"loss must be None or a callable from logits and soft targets to (N,), such as Focal(), got {loss!r}"
        )


def _applied(loss: LossLike, logits: Tensor, targets: Tensor) -> Tensor:
    values = loss(logits, targets)
    if not isinstance(values, Tensor) or values.shape != (len(logits),):
        got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else repr(values)
        raise ValueError(f"loss must return one value per image, ({len(logits)},), and no mean of them, got {got}")
    return values


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers as a tensor that is made once: copying from the host would break the capture of a CUDA graph."""
    return _constants(values, dtype, device)


@cache
def _constants(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)
