"""Activation shaping: the energy of features of which only the largest are left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.scores._features import FeatureScore, LinearHead, check_features, in_pieces
from regmixup.metrics.scores.logit_scores import energy


@dataclass(frozen=True, kw_only=True)
class ASH(FeatureScore):
    """-logsumexp(W phi' + b), phi' the feature less the `percentile` % smallest of its numbers (Djurisic et al., 2023).

    variant: "p" leaves the others as they are, "b" sets each to the sum s_1 of all over their count, and "s" multiplies
    them by exp(s_1 / s_2), s_2 being the sum of those left. Features must be >= 0, as after a ReLU; only "p" has a
    meaning for others.

    The authors' percentiles for ImageNet are 90 for "s", 65 for "b" and 60 for "p", where some networks' feature maps
    are shaped before they are averaged over the image. Here it is the averaged feature, as predictions hold no other:
    values differ from theirs, and since an average has few numbers near 0, 90 can make s_1 / s_2 outweigh the logits
    and turn the order round. Hence 65.

    >>> shaped = ASH(percentile=50, variant="b").shaped(torch.tensor([[1.0, 2.0, 4.0, 5.0]]))
    >>> shaped.tolist()
    [[0.0, 0.0, 6.0, 6.0]]
    """

    percentile: float = 65.0
    variant: Literal["s", "b", "p"] = "s"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("percentile", self.percentile, least=0, below=100)

    def fit(self, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedASH:
        """With the linear head's weight (K, D) and bias (K,); no train sample is needed."""
        return FittedASH(self, LinearHead.of(head_weight, head_bias))

    def shaped(self, features: Tensor) -> Tensor:
        """phi' of every row, (N, D). At least one number of each is left."""
        if self.variant != "p" and bool((features < 0).any()):
            raise ValueError(
                f"ASH {self.variant!r} needs features >= 0, as after a ReLU, got {float(features.min()):g}"
            )
        width = features.shape[1]
        left = features.topk(max(1, width - round(width * self.percentile / 100)), dim=1)
        total, kept = features.sum(dim=1, keepdim=True), left.values
        if self.variant == "b":
            kept = (total / kept.shape[1]).expand_as(kept)
        elif self.variant == "s":
            # A feature of zeros stays one: 0 / 0 would not.
            ratio = torch.where(total > 0, total / kept.sum(dim=1, keepdim=True), 1)
            kept = kept * ratio.exp()
        return torch.zeros_like(features).scatter(1, left.indices, kept)


@dataclass(frozen=True, eq=False)
class FittedASH:
    """Features (N, D) -> (N,)."""

    score: ASH
    head: LinearHead = field(repr=False)

    def __call__(self, features: Tensor) -> Tensor:
        features = check_features(features, self.head.width)
        return in_pieces(lambda piece: energy(self.head(self.score.shaped(piece))), features)
