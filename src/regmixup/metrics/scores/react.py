"""Rectified activations: the energy of features cut off at a height that train features seldom pass."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.scores._features import FeatureScore, LinearHead, check_features, check_train, in_pieces
from regmixup.metrics.scores.logit_scores import energy


@dataclass(frozen=True, kw_only=True)
class ReAct(FeatureScore):
    """-logsumexp(W min(phi, c) + b), c the `percentile` of all numbers in the train features (Sun et al., 2021).

    >>> features, weight = torch.tensor([[0.0], [1.0], [2.0]]), torch.ones(1, 1)
    >>> ReAct(percentile=50).fit(features, weight)(torch.tensor([[0.5], [9.0]]))  # cut at 1
    tensor([-0.5000, -1.0000], dtype=torch.float64)
    """

    percentile: float = 90.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("percentile", self.percentile, least=0, most=100)

    def fit(self, features: Tensor, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedReAct:
        """On train features (N, D) and the linear head's weight (K, D) and bias (K,)."""
        features = check_train(features)
        head = LinearHead.of(head_weight, head_bias, features.shape[1])
        exact = torch.promote_types(features.dtype, torch.float32)
        # NumPy's has no limit of 2^24 numbers, which torch's quantile has.
        threshold = float(np.percentile(features.to("cpu", exact).numpy(), self.percentile))
        return FittedReAct(self, threshold, head)


@dataclass(frozen=True, eq=False)
class FittedReAct:
    """Features (N, D) -> (N,). threshold: where they are cut off."""

    score: ReAct
    threshold: float
    head: LinearHead = field(repr=False)

    def __call__(self, features: Tensor) -> Tensor:
        features = check_features(features, self.head.width)
        return in_pieces(lambda piece: energy(self.head(piece.clamp(max=self.threshold))), features)
