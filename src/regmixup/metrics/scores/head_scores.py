"""Scores of features and a linear head: ReAct, ASH and ViM, energies of features cut off, shaped or projected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from regmixup.config import check_count, check_number
from regmixup.metrics.ordering import precise
from regmixup.metrics.scores.features import FeatureScore, check_train, in_pieces
from regmixup.metrics.scores.logit_scores import energy


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """logits = features weight^T + bias; weight (K, D), bias (K,)."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, width: int | None = None) -> HeadWeights:
        """Return the head in float64, a missing bias being 0. width: the D of the features it must go with."""
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
        """Fit on train features (N, D) and the linear head's weight (K, D) and bias (K,)."""
        features = check_train(features)
        head = HeadWeights.of(head_weight, head_bias, features.shape[1])
        exact = torch.promote_types(features.dtype, torch.float32)
        # NumPy's has no limit of 2^24 numbers, which torch's quantile has.
        threshold = float(np.percentile(features.to("cpu", exact).numpy(), self.percentile))
        return FittedReAct(self, threshold, head)


@dataclass(frozen=True, eq=False)
class FittedReAct:
    """Features (N, D) -> (N,). threshold: where they are cut off."""

    score: ReAct
    threshold: float
    head: HeadWeights = field(repr=False)

    def __call__(self, features: Tensor) -> Tensor:
        return in_pieces(
            lambda piece: energy(self.head(piece.clamp(max=self.threshold))), features, width=self.head.width
        )


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
        """Fit to the linear head's weight (K, D) and bias (K,); no train sample is needed."""
        return FittedASH(self, HeadWeights.of(head_weight, head_bias))

    def shaped(self, features: Tensor) -> Tensor:
        """Return phi' of every row, (N, D). At least one number of each is left."""
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
    head: HeadWeights = field(repr=False)

    def __call__(self, features: Tensor) -> Tensor:
        return in_pieces(lambda piece: energy(self.head(self.score.shaped(piece))), features, width=self.head.width)


@dataclass(frozen=True, kw_only=True)
class ViM(FeatureScore):
    """alpha |R^T (phi - o)| - logsumexp(W phi + b) (ViM; Wang et al., 2022).

    o = -W^+ b, where the head gives zero logits as nearly as can be; R the D - dim directions in which the train
    features, seen from o, extend least (smallest eigenvalues of the mean of (phi - o)(phi - o)^T); alpha the mean
    largest train logit over the mean train |R^T (phi - o)|, which brings both terms to one scale.

    dim: of the principal space; None is the authors' 1000 from 2048 features on, 512 from 768 on, and half of fewer.
    """

    dim: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim is not None:
            check_count("dim", self.dim)

    def fit(self, features: Tensor, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedViM:
        """Fit on train features (N, D) and the linear head's weight (K, D) and bias (K,)."""
        features = check_train(features)
        width = features.shape[1]
        head = HeadWeights.of(head_weight, head_bias, width)
        dim = self.dim if self.dim is not None else _usual_dim(width)
        if dim >= width:
            raise ValueError(f"dim must leave a direction of the {width} features, got {dim}")
        origin = -torch.linalg.pinv(head.weight) @ head.bias
        moment = origin.new_zeros(width, width)

        def gather(piece: Tensor) -> Tensor:
            moment.addmm_((piece - origin).T, piece - origin)
            return head(piece).amax(dim=1)

        largest = in_pieces(gather, features).mean()
        residual = torch.linalg.eigh(moment / len(features)).eigenvectors[:, : width - dim]
        length = in_pieces(lambda piece: ((piece - origin) @ residual).norm(dim=1), features).mean()
        if not length > 0:
            raise ValueError(f"features must leave their principal space, got none that does for dim {dim}")
        return FittedViM(self, dim, float(largest / length), origin, residual, head)


def _usual_dim(width: int) -> int:
    return 1000 if width >= 2048 else 512 if width >= 768 else width // 2


@dataclass(frozen=True, eq=False)
class FittedViM:
    """Features (N, D) -> (N,). dim: of the principal space; alpha: the scale of the residual."""

    score: ViM
    dim: int
    alpha: float
    origin: Tensor = field(repr=False)
    residual: Tensor = field(repr=False)
    head: HeadWeights = field(repr=False)

    def __call__(self, features: Tensor) -> Tensor:
        return in_pieces(self._virtual, features, width=self.head.width)

    def _virtual(self, features: Tensor) -> Tensor:
        length = ((features - self.origin) @ self.residual).norm(dim=1)
        return self.alpha * length + energy(self.head(features))
