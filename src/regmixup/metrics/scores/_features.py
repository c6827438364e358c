"""What the scores of features share: a check, a walk in pieces, and the linear head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regmixup.config import check_choices
from regmixup.metrics.ordering import precise

_CHUNK = 2**22


@dataclass(frozen=True, kw_only=True)
class FeatureScore:
    """Base of the scores that are fitted: the fields are the hyper-parameters, and `fit` returns a `FittedScore`."""

    def __post_init__(self) -> None:
        check_choices(self)


class FittedScore(Protocol):
    """Features (N, D) -> float64 scores (N,), larger for samples more out-of-distribution."""

    def __call__(self, features: Tensor) -> Tensor: ...


def check_train(features: Tensor) -> Tensor:
    """Features to fit on: finite and at least one."""
    features = check_features(features)
    if len(features) == 0:
        raise ValueError("features must hold at least one train sample, got none")
    if not torch.isfinite(features).all():
        raise ValueError("features must be finite, got NaN or infinite values")
    return features


def check_features(features: Tensor, width: int | None = None) -> Tensor:
    """Floating-point (N, D), with D = width where that is known."""
    features = torch.as_tensor(features).detach()
    if features.ndim != 2 or not features.is_floating_point() or features.shape[1] == 0:
        raise ValueError(
            f"features must be floating point of shape (N, D), got {features.dtype} {tuple(features.shape)}"
        )
    if width is not None and features.shape[1] != width:
        raise ValueError(f"features must be (N, {width}) like those of the fit, got {tuple(features.shape)}")
    return features


def in_pieces(function: Callable[[Tensor], Tensor], features: Tensor, rows: int | None = None) -> Tensor:
    """function(features), a piece of so many rows at a time, each in float64."""
    rows = rows if rows is not None else max(1, _CHUNK // features.shape[1])
    return torch.cat([function(precise(piece)) for piece in features.split(rows)])


@dataclass(frozen=True, eq=False)
class LinearHead:
    """logits = features weight^T + bias; weight (K, D), bias (K,)."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, width: int | None = None) -> LinearHead:
        """In float64, a missing bias being 0. width: the D of the features it must go with."""
        weight = torch.as_tensor(weight).detach()
        if weight.ndim != 2 or (width is not None and weight.shape[1] != width):
            raise ValueError(f"head_weight must be (K, {width or 'D'}), got {tuple(weight.shape)}")
        bias = torch.as_tensor(bias).detach() if bias is not None else weight.new_zeros(len(weight))
        if bias.shape != (len(weight),):
            raise ValueError(f"head_bias must be ({len(weight)},), got {tuple(bias.shape)}")
        return cls(precise(weight), precise(bias))

    @property
    def width(self) -> int:
        return self.weight.shape[1]

    def __call__(self, features: Tensor) -> Tensor:
        return features @ self.weight.T + self.bias
