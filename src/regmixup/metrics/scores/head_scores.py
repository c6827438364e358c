"""Scores of features and a linear head: ReAct, ASH and ViM, energies of features cut off, shaped or projected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from regmixup.metrics.fisher import check_features
from regmixup.metrics.pieces import precise
from regmixup.metrics.scores.features import FittedScore, in_pieces
from regmixup.metrics.scores.logit_scores import energy


def linear_head(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return features -> features weight^T + bias in float64; weight (K, D), bias (K,) or None for 0."""
    weight = precise(torch.as_tensor(weight).detach())
    bias = precise(torch.as_tensor(bias).detach()) if bias is not None else weight.new_zeros(len(weight))
    return lambda features: features @ weight.T + bias


@dataclass(frozen=True, kw_only=True)
class ReAct:
    """-logsumexp(W min(phi, c) + b), c the `percentile` of all numbers in the train features (Sun et al., 2021).

    >>> features, weight = torch.tensor([[0.0], [1.0], [2.0]]), torch.ones(1, 1)
    >>> ReAct(percentile=50).fit(features, weight)(torch.tensor([[0.5], [9.0]]))  # cut at 1
    tensor([-0.5000, -1.0000], dtype=torch.float64)
    """

    percentile: float = 90.0

    def fit(self, features: Tensor, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedScore:
        """Fit on train features (N, D) and the linear head's weight (K, D) and bias (K,)."""
        features = check_features(features, finite=True)
        head = linear_head(head_weight, head_bias)
        exact = torch.promote_types(features.dtype, torch.float32)
        # NumPy's has no limit of 2^24 numbers, which torch's quantile has.
        threshold = float(np.percentile(features.to("cpu", exact).numpy(), self.percentile))
        return partial(in_pieces, lambda piece: energy(head(piece.clamp(max=threshold))))


@dataclass(frozen=True, kw_only=True)
class ASH:
    """-logsumexp(W phi' + b), phi' the feature without the `percentile` % smallest of its numbers, the others times
    exp(s_1 / s_2), s_1 being the sum of all numbers and s_2 that of those left (ASH-S; Djurisic et al., 2023).

    Features must be >= 0, as after a ReLU. The authors take 90 for ImageNet, where some networks' feature maps are
    shaped before they are averaged over the image. Here it is the averaged feature, as predictions hold no other:
    values differ from theirs, and since an average has few numbers near 0, 90 can make s_1 / s_2 outweigh the logits
    and turn the order round. Hence 65.

    >>> ASH(percentile=50).shaped(torch.tensor([[1.0, 2.0, 4.0, 5.0]]))  # 4 and 5 times exp(12 / 9)
    tensor([[ 0.0000,  0.0000, 15.1747, 18.9683]])
    """

    percentile: float = 65.0

    def fit(self, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedScore:
        """Fit to the linear head's weight (K, D) and bias (K,); no train sample is needed."""
        head = linear_head(head_weight, head_bias)
        return partial(in_pieces, lambda piece: energy(head(self.shaped(piece))))

    def shaped(self, features: Tensor) -> Tensor:
        """Return phi' of every sample, (N, D). At least one number of each is left."""
        if bool((features < 0).any()):
            raise ValueError(f"ASH needs features >= 0, as after a ReLU, got {float(features.min()):g}")
        width = features.shape[1]
        left = features.topk(max(1, width - round(width * self.percentile / 100)), dim=1)
        total = features.sum(dim=1, keepdim=True)
        # A feature of zeros stays one: 0 / 0 would not.
        ratio = torch.where(total > 0, total / left.values.sum(dim=1, keepdim=True), 1)
        return torch.zeros_like(features).scatter(1, left.indices, left.values * ratio.exp())


@dataclass(frozen=True, kw_only=True)
class ViM:
    """alpha |R^T (phi - o)| - logsumexp(W phi + b) (ViM; Wang et al., 2022).

    o = -W^+ b, where the head gives zero logits as nearly as can be; R the D - dim directions in which the train
    features, seen from o, extend least (smallest eigenvalues of the mean of (phi - o)(phi - o)^T); alpha the mean
    largest train logit over the mean train |R^T (phi - o)|, which brings both terms to one scale.

    dim: of the principal space; None is the authors' 1000 from 2048 features on, 512 from 768 on, and half of fewer.
    """

    dim: int | None = None

    def fit(self, features: Tensor, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedScore:
        """Fit on train features (N, D) and the linear head's weight (K, D) and bias (K,)."""
        features = check_features(features, finite=True)
        width = features.shape[1]
        head = linear_head(head_weight, head_bias)
        dim = self.dim if self.dim is not None else usual_dim(width)
        if not 0 < dim < width:
            raise ValueError(f"dim must be positive and leave a direction of the {width} features, got {dim}")
        bias = head(precise(features[:1]).new_zeros(width))
        origin = -torch.linalg.pinv(precise(torch.as_tensor(head_weight).detach())) @ bias
        moment = origin.new_zeros(width, width)

        def gather(piece: Tensor) -> Tensor:
            moment.addmm_((piece - origin).T, piece - origin)
            return head(piece).amax(dim=1)

        largest = in_pieces(gather, features).mean()
        residual = torch.linalg.eigh(moment / len(features)).eigenvectors[:, : width - dim]

        def residual_length(piece: Tensor) -> Tensor:
            return ((piece - origin) @ residual).norm(dim=1)

        length = in_pieces(residual_length, features).mean()
        if not length > 0:
            raise ValueError(f"features must leave their principal space, got none that does for dim {dim}")
        alpha = float(largest / length)

        def virtual(piece: Tensor) -> Tensor:
            return alpha * residual_length(piece) + energy(head(piece))

        return partial(in_pieces, virtual)


def usual_dim(width: int) -> int:
    """Return the authors' dimension of the principal space of features of this width."""
    return 1000 if width >= 2048 else 512 if width >= 768 else width // 2
