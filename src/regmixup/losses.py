"""Losses of soft targets, and what every objective does with them.

An objective's field `loss` is None, which is cross-entropy, or a callable from logits (N, K) and soft targets (N, K) to
one value per image, (N,). `CrossEntropy`, `Focal`, `LogitNorm` and `BinaryCrossEntropy` are such callables that a
configuration can record, and so is a class of your own derived from `Loss`. Any other callable works in a training loop
of your own.

The loss of a batch is the mean of these values: it divides by N. torch's mean over class indices with class weights
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.config import Checked, NotNegative, Positive, Share, check_count
from regmixup.mixing import can_look, full_precision, made_once, repeat

__all__ = ["LOSSES", "BinaryCrossEntropy", "CrossEntropy", "Focal", "LogitNorm", "Loss", "balanced_weight"]

_NO_LABEL = -(2**40)  # torch would silently skip labels of -100, its default for "ignore"


@dataclass(frozen=True)
class Loss(Checked, ABC):
    """Base of the losses that a configuration can record: a frozen dataclass whose fields are its hyper-parameters."""

    retired: ClassVar[dict[str, Any]] = {"ignore_index": None}
    """Fields that left with the value that stored configurations must have; see `config.decode`."""

    @abstractmethod
    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each image, (N,). logits: (N, K). targets: (N, K)."""


LossLike = Loss | Callable[[Tensor, Tensor], Tensor]
"""The values of an objective's field `loss`."""


@dataclass(frozen=True)
class CrossEntropy(Loss):
    """Return -sum_c w_c t'_c log p_c, p the softmax of the logits and t' = (1 - s) t + s / K."""

    weight: tuple[NotNegative, ...] | None = None
    """w, one number >= 0 per class, kept as a tuple if given as a list, array or tensor; None weighs all classes by 1.
    The mean over the batch divides by N, not by the sum of the labels' weights."""
    smoothing: Share = 0.0
    """s, from 0 to below 1."""

    def __post_init__(self) -> None:
        weight: Any = self.weight
        numbers = weight.tolist() if hasattr(weight, "tolist") else weight
        object.__setattr__(self, "weight", tuple(numbers) if isinstance(numbers, Iterable) else numbers)
        super().__post_init__()

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(
            logits, targets, self.weight_like(logits), reduction="none", label_smoothing=self.smoothing
        )

    def weight_like(self, table: Tensor) -> Tensor | None:
        """Return w, if there is one, with the type and on the device of a table (N, K)."""
        if self.weight is not None and len(self.weight) != table.shape[1]:
            raise ValueError(f"weight must have one number per class, {table.shape[1]}, got {len(self.weight)}")
        return None if self.weight is None else _constant(self.weight, table.dtype, table.device)


@dataclass(frozen=True)
class Focal(Loss):
    """Return -sum_c t_c (1 - p_c)^gamma log p_c, p the softmax of the logits (Lin et al., 2017).

    >>> Focal(2.0)(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))  # (1/2)^2 log 2
    tensor([0.1733])
    """

    gamma: NotNegative = 2.0
    """>= 0: how fast well classified images lose weight; 0 is cross-entropy."""

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        log_probs = logits.log_softmax(dim=1)
        # Above 0, because the power's gradient is infinite at p = 1 for gamma below 1.
        doubt = (-torch.expm1(log_probs)).clamp(min=torch.finfo(log_probs.dtype).tiny)  # 1 - p
        return -(targets * doubt**self.gamma * log_probs).sum(dim=1)


@dataclass(frozen=True)
class LogitNorm(Loss):
    """Return -sum_c t_c log p_c, p the softmax of f / (tau ||f||), f the logits (Wei et al., 2022).

    The norm is divided out in the loss alone: predictions and scores are those of the logits as they are. At logits of
    exactly 0, as of a head that begins with zeros, the gradient is of the order 1e7 / tau, as in the released code: SGD
    hardly recovers from such a step.

    >>> LogitNorm(1.0)(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 1.0]]))  # log(1 + exp(.6 - .8))
    tensor([0.5981])
    """

    tau: Positive = 0.04
    """> 0: temperature; 0.04 on CIFAR-10 in the paper."""

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(logits, dim=1, keepdim=True) + 1e-7  # the released code's
        return F.cross_entropy(logits / norm / self.tau, targets, reduction="none")


@dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
    """Return -1/K sum_c [t_c log s_c + (1 - t_c) log(1 - s_c)], s the sigmoid of the logits: K yes-or-no questions.

    For multi-label targets (N, K) in [0, 1], whose rows need not sum to 1. Class indices are taken as one-hot targets.
    It is linear in the target, so mixed targets mean what they mean for cross-entropy.

    >>> BinaryCrossEntropy()(torch.zeros(1, 3), torch.tensor([[1.0, 1.0, 0.0]]))  # log 2
    tensor([0.6931])
    """

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)


LOSSES: dict[str, type[Loss]] = {
    "cross_entropy": CrossEntropy,
    "focal": Focal,
    "logitnorm": LogitNorm,
    "binary_cross_entropy": BinaryCrossEntropy,
}
"""The losses that the command line knows, by name."""


def image_losses(logits: Tensor, y: Tensor, loss: LossLike | None = None, smoothing: float = 0.0) -> Tensor:
    """Return the loss of each image, (m N,), in at least float32.

    logits: (m N, K), for m >= 1 versions of the N images. y: (N,) class indices or (N, K) probabilities.
    """
    check_labels(y, logits.shape[1], loss)
    logits, y = full_precision(logits), repeat(y, len(logits) // len(y))
    if loss is None:
        return cross_entropy(logits, y, smoothing)
    return _applied(loss, logits, (1 - smoothing) * soft_targets(y, logits) + smoothing / logits.shape[1])


def mixed_losses(logits: Tensor, y: Tensor, other: Tensor, lam: Tensor, loss: LossLike | None = None) -> Tensor:
    """Return the loss of each mixed image against lam y + (1 - lam) other, (m N,).

    logits: (m N, K). y: the labels of the N images. other: those of the m N partners. lam: () or (m N,).
    """
    check_labels(y, logits.shape[1], loss)
    logits, y = full_precision(logits), repeat(y, len(logits) // len(y))
    weight = lam.to(logits.dtype)
    if loss is None:  # cross-entropy is linear in the label
        return weight * cross_entropy(logits, y) + (1 - weight) * cross_entropy(logits, other)
    weight = weight.reshape(-1, 1)
    return _applied(loss, logits, weight * soft_targets(y, logits) + (1 - weight) * soft_targets(other, logits))


def cross_entropy(logits: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of each image, (N,), without a look at the labels' values."""
    target = y.to(logits.dtype) if y.ndim == 2 else y
    return F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing, ignore_index=_NO_LABEL)


def soft_targets(y: Tensor, logits: Tensor) -> Tensor:
    """Return labels as probabilities (N, K) of the logits' type and number of classes."""
    return (y if y.ndim == 2 else F.one_hot(y, logits.shape[1])).to(logits.dtype)


def check_labels(y: Tensor, num_classes: int, loss: LossLike | None = None) -> None:
    """Check that labels are what the loss takes, as far as reading them is free.

    Class indices must lie in [0, num_classes), and there must be two classes or more. Probabilities must have
    num_classes columns and, for losses of the softmax, rows that sum to 1; for binary cross-entropy they lie in [0, 1].
    """
    binary = "loss=rm.losses.BinaryCrossEntropy()"
    if y.ndim == 1 and num_classes == 1:
        raise ValueError(
            "the model must return logits of two classes or more, got one, whose softmax is always 1; for a yes-or-no "
            f"question give y as floats (N, 1) and the objective {binary}"
        )
    if y.ndim == 2 and y.shape[1] != num_classes:
        raise ValueError(f"y must have one probability per class, {num_classes}, got shape {tuple(y.shape)}")
    if not can_look(y):
        return
    low, high = float(y.min()), float(y.max())
    if y.ndim == 1 and not 0 <= low <= high < num_classes:
        raise ValueError(f"y must hold labels in [0, {num_classes}), got values from {low:g} to {high:g}")
    if y.ndim == 2 and isinstance(loss, BinaryCrossEntropy) and not 0 <= low <= high <= 1 + 1e-3:  # NaN is neither
        raise ValueError(f"y must hold numbers in [0, 1], got values from {low:g} to {high:g}")
    if y.ndim == 2 and (loss is None or isinstance(loss, CrossEntropy | Focal | LogitNorm)):
        sums = y.double().sum(dim=1)
        if not (low >= 0 and ((sums - 1).abs() < 0.02).all()):
            contract = f"rows >= 0 that sum to 1 (for several classes: {binary})"
            raise ValueError(
                f"y must hold {contract}, got values from {low:g} to {high:g} and sums from {float(sums.min()):g} to "
                f"{float(sums.max()):g}"
            )


def balanced_weight(labels: Tensor | Sequence[int], num_classes: int | None = None) -> tuple[float, ...]:
    """Return class weights N / (K n_c), n_c the images of class c: all classes weigh the same, and images 1 on average.

    labels: (N,) class indices. num_classes: K, default the largest label + 1. For `CrossEntropy(weight=...)`.

    >>> balanced_weight([0, 0, 0, 1])
    (0.6666666666666666, 2.0)
    """
    counts = torch.as_tensor(labels).bincount().tolist()
    if num_classes is not None:
        check_count("num_classes", num_classes, least=max(1, len(counts)))
        counts += [0] * (num_classes - len(counts))
    if 0 in counts:
        raise ValueError(f"labels must hold an image of each class for balanced weights, got the counts {counts}")
    return tuple(sum(counts) / (len(counts) * count) for count in counts)


def _applied(loss: LossLike, logits: Tensor, targets: Tensor) -> Tensor:
    losses = loss(logits, targets)
    if losses.shape != (len(logits),):
        raise ValueError(
            f"loss must return one value per image, ({len(logits)},), and no mean of them (in torch reduction='none'), "
            f"got shape {tuple(losses.shape)} from {loss!r}"
        )
    return losses


@made_once
def _constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=dtype, device=device)
