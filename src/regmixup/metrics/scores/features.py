"""Shared by the scores of features: their base class, checks, and a pass in pieces."""

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
    """Return features to fit on, checked to be finite and at least one."""
    features = check_features(features)
    if len(features) == 0:
        raise ValueError("features must hold at least one train sample, got none")
    if not torch.isfinite(features).all():
        raise ValueError("features must be finite, got NaN or infinite values")
    return features


def check_features(features: Tensor, width: int | None = None) -> Tensor:
    """Return features checked to be floating-point (N, D), with D = width where that is known."""
    features = torch.as_tensor(features).detach()
    if features.ndim != 2 or not features.is_floating_point() or features.shape[1] == 0:
        raise ValueError(
            f"features must be floating point of shape (N, D), got {features.dtype} {tuple(features.shape)}"
        )
    if width is not None and features.shape[1] != width:
        raise ValueError(f"features must be (N, {width}) like those of the fit, got {tuple(features.shape)}")
    return features


def in_pieces(function: Callable[[Tensor], Tensor], features: Tensor, rows: int | None = None) -> Tensor:
    """Return function(features), computed for a piece of `rows` rows at a time, each in float64."""
    rows = rows if rows is not None else max(1, _CHUNK // features.shape[1])
    return torch.cat([function(precise(piece)) for piece in features.split(rows)])
