"""Scores of features and a linear head: of its energy, and fDBD of the distances to its decision boundaries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from regmixup.config import Bounds, Checked, Count, check_number
from regmixup.metrics.pieces import pieces_of, precise
from regmixup.metrics.scores.features import FittedScore, check_neighbours, in_pieces, mean_of, train_features
from regmixup.metrics.scores.logit_scores import energy
from regmixup.types import as_tensor

_PIECE = 2**22
Percentile = Annotated[float, Bounds(check_number, least=0, most=100)]


class LinearMap(NamedTuple):
    """The head features -> features weight^T + bias, in float64; weight (K, D), bias (K,)."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, width: int | None = None) -> LinearMap:
        """Return a head of checked weights. bias: None for 0. width: D of the features, if they are known."""
        weight = precise(as_tensor("head_weight", weight).detach())
        bias = weight.new_zeros(weight.shape[:1]) if bias is None else precise(as_tensor("head_bias", bias).detach())
        if weight.ndim != 2 or width not in (None, weight.shape[1]) or bias.shape != weight.shape[:1]:
            d = "D" if width is None else width
            raise ValueError(
                f"head_weight must be (K, {d}) for features (N, {d}) and head_bias (K,), got {tuple(weight.shape)} and "
                f"{tuple(bias.shape)}"
            )
        return cls(weight, bias)

    def __call__(self, features: Tensor) -> Tensor:
        return features @ self.weight.T + self.bias


@dataclass(frozen=True, kw_only=True)
class ReAct(Checked):
    """-logsumexp(W min(phi, c) + b), c the `percentile` of all numbers in the train features (Sun et al., 2021).

    >>> features, weight = torch.tensor([[0.0], [1.0], [2.0]]), torch.ones(1, 1)
    >>> ReAct(percentile=50).fit(features, weight)(torch.tensor([[0.5], [9.0]]))  # cut at 1
    tensor([-0.5000, -1.0000], dtype=torch.float64)
    """

    percentile: Percentile = 90.0

    def fit(self, features: Tensor, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedScore:
        """Fit on train features (N, D) and the linear head's weight (K, D) and bias (K,)."""
        features = train_features(features)
        head = LinearMap.of(head_weight, head_bias, features.shape[1])
        exact = torch.promote_types(features.dtype, torch.float32)
        # NumPy's has no limit of 2^24 numbers, which torch's quantile has.
        threshold = float(np.percentile(features.to("cpu", exact).numpy(), self.percentile))
        return partial(in_pieces, lambda piece: energy(head(piece.clamp(max=threshold))), width=features.shape[1])


@dataclass(frozen=True, kw_only=True)
class ASH(Checked):
    """-logsumexp(W phi' + b), phi' the feature without the `percentile` % smallest of its numbers, the others times
    exp(s_1 / s_2), s_1 being the sum of all numbers and s_2 that of those left (ASH-S; Djurisic et al., 2023).

    Features must be >= 0, as after a ReLU. The authors take 90 for ImageNet, where some networks' feature maps are
    shaped before they are averaged over the image. Here it is the averaged feature, as predictions hold no other:
    values differ from theirs, and since an average has few numbers near 0, 90 can make s_1 / s_2 outweigh the logits
    and turn the order round. Hence 65.

    >>> ASH(percentile=50).shaped(torch.tensor([[1.0, 2.0, 4.0, 5.0]]))  # 4 and 5 times exp(12 / 9)
    tensor([[ 0.0000,  0.0000, 15.1747, 18.9683]])
    """

    percentile: Percentile = 65.0

    def fit(self, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedScore:
        """Fit to the linear head's weight (K, D) and bias (K,); no train sample is needed."""
        head = LinearMap.of(head_weight, head_bias)
        return partial(in_pieces, lambda piece: energy(head(self.shaped(piece))), width=head.weight.shape[1])

    def shaped(self, features: Tensor) -> Tensor:
        """Return phi' of every sample, (N, D). At least one number of each is left."""
        kept, factor = _strongest("ASH", features, self.percentile)
        return torch.zeros_like(features).scatter(1, kept.indices, kept.values * factor)


@dataclass(frozen=True, kw_only=True)
class SCALE(Checked):
    """-logsumexp(W phi exp(s_1 / s_2) + b), s_1 being the sum of the feature's numbers and s_2 that of those left
    without the `percentile` % smallest (Xu et al., 2024): ASH-S that scales every number and removes none.

    Features must be >= 0, as after a ReLU. 85 is the authors' for ImageNet and CIFAR, on the averaged feature. After
    149 epochs of plain training on CIFAR-10 it detects little: a near-OOD AUROC of 54 %.

    >>> SCALE(percentile=50).scaled(torch.tensor([[1.0, 2.0, 4.0, 5.0]]))  # all times exp(12 / 9)
    tensor([[ 3.7937,  7.5873, 15.1747, 18.9683]])
    """

    percentile: Percentile = 85.0

    def fit(self, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedScore:
        """Fit to the linear head's weight (K, D) and bias (K,); no train sample is needed."""
        head = LinearMap.of(head_weight, head_bias)
        return partial(in_pieces, lambda piece: energy(head(self.scaled(piece))), width=head.weight.shape[1])

    def scaled(self, features: Tensor) -> Tensor:
        """Return phi exp(s_1 / s_2) of every sample, (N, D)."""
        _, factor = _strongest("SCALE", features, self.percentile)
        return features * factor


def _strongest(score: str, features: Tensor, percentile: float) -> tuple[torch.return_types.topk, Tensor]:
    """Return each sample's largest numbers with their places, and the factor exp(s_1 / s_2), (N, 1).

    The `percentile` % smallest are left out, but at least one number is left. score: the one that asks, for the error.
    """
    if bool((features < 0).any()):
        raise ValueError(f"{score} needs features >= 0, as after a ReLU, got {float(features.min()):g}")
    width = features.shape[1]
    kept = features.topk(max(1, width - round(width * percentile / 100)), dim=1)
    total = features.sum(dim=1, keepdim=True)
    # A feature of zeros stays one: 0 / 0 would not.
    ratio = torch.where(total > 0, total / kept.values.sum(dim=1, keepdim=True), 1)
    return kept, ratio.exp()


@dataclass(frozen=True, kw_only=True)
class ViM(Checked):
    """alpha |R^T (phi - o)| - logsumexp(W phi + b) (ViM; Wang et al., 2022).

    o = -W^+ b, where the head gives zero logits as nearly as can be; R the D - dim directions in which the train
    features, seen from o, extend least (smallest eigenvalues of the mean of (phi - o)(phi - o)^T); alpha the mean
    largest train logit over the mean train |R^T (phi - o)|, which brings both terms to one scale.

    dim: of the principal space; None is the authors' 1000 from 2048 features on, 512 from 768 on, and half of fewer.
    """

    dim: Count | None = None

    def fit(self, features: Tensor, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedScore:
        """Fit on train features (N, D) and the linear head's weight (K, D) and bias (K,)."""
        features = train_features(features)
        width = features.shape[1]
        head = LinearMap.of(head_weight, head_bias, width)
        dim = self.dim if self.dim is not None else usual_dim(width)
        if dim >= width:
            raise ValueError(f"dim must leave a direction of the {width} features, got {dim}")
        origin = -torch.linalg.pinv(head.weight) @ head.bias
        moment = origin.new_zeros(width, width)
        for rows in pieces_of(features, _PIECE):
            from_origin = precise(features[rows]) - origin
            moment.addmm_(from_origin.T, from_origin)
        residual = torch.linalg.eigh(moment / len(features)).eigenvectors[:, : width - dim]

        def residual_length(piece: Tensor) -> Tensor:
            return ((piece - origin) @ residual).norm(dim=1)

        length = in_pieces(residual_length, features).mean()
        if not length > 0:
            raise ValueError(f"features must leave their principal space, got none that does for dim {dim}")
        largest = in_pieces(lambda piece: head(piece).amax(dim=1), features).mean()
        alpha = float(largest / length)

        def virtual(piece: Tensor) -> Tensor:
            return alpha * residual_length(piece) + energy(head(piece))

        return partial(in_pieces, virtual, width=width)


def usual_dim(width: int) -> int:
    """Return the authors' dimension of the principal space of features of this width."""
    if width >= 2048:
        return 1000
    return 512 if width >= 768 else width // 2


@dataclass(frozen=True, kw_only=True)
class FDBD:
    """-1 / (K - 1) sum_{c != y} (s_y - s_c) / (|w_y - w_c| |phi - mu|), y the predicted class (fDBD; Liu & Qin, 2024).

    s = W phi + b. The distance of phi to the decision boundary between y and c is (s_y - s_c) / |w_y - w_c|. mu is the
    mean train feature: features far from it are far from the boundaries, too. It has no hyper-parameter.

    >>> weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> score = FDBD().fit(torch.zeros(4, 2), weight)
    >>> score(torch.tensor([[3.0, 4.0], [3.0, 0.0]]))  # 3 from the boundary, 5 and 3 from the mean
    tensor([-0.6000, -1.0000], dtype=torch.float64)
    """

    def fit(self, features: Tensor, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedScore:
        """Fit on train features (N, D) and the linear head's weight (K, D) and bias (K,)."""
        features = train_features(features)
        head = LinearMap.of(head_weight, head_bias, features.shape[1])
        mean = mean_of(lambda piece: piece, features)
        # The faster way to compute them cancels digits.
        apart = torch.cdist(head.weight, head.weight, compute_mode="donot_use_mm_for_euclid_dist")
        # Between a class and itself, or one of the same weights, there is no boundary.
        apart = apart.masked_fill(apart == 0, torch.inf)

        def boundary_distance(piece: Tensor) -> Tensor:
            logits = head(piece)
            largest, predicted = logits.max(dim=1, keepdim=True)
            distances = (largest - logits) / apart[predicted.squeeze(1)]
            others = max(1, logits.shape[1] - 1)
            return -distances.sum(dim=1) / others / (piece - mean).norm(dim=1).clamp_min(1e-12)

        return partial(in_pieces, boundary_distance, width=features.shape[1])


@dataclass(frozen=True, kw_only=True)
class NNGuide(Checked):
    """-E(phi) G(phi), the energy times the guidance of the nearest train features (Park et al., 2023).

    E(phi) = logsumexp(W phi + b). G(phi) is the mean of the k largest <phi, E(z) z> over the train features z, phi and
    z of length 1: similar to train samples that the head is sure of.

    k: 10 in the authors' code, 100 in OpenOOD. On ImageNet the authors keep 1 % of the train features: fit on these.
    The train features are kept, and compared, in their own precision, at least float32.

    >>> score = NNGuide(k=1).fit(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.ones(1, 2))  # energies 1 and 2
    >>> score(torch.tensor([[3.0, 0.0], [0.0, 3.0]]))
    tensor([-3., -6.], dtype=torch.float64)
    """

    k: Count = 10

    def fit(self, features: Tensor, head_weight: Tensor, head_bias: Tensor | None = None) -> FittedScore:
        """Fit on train features (N, D), N >= k, and the linear head's weight (K, D) and bias (K,)."""
        features = train_features(features)
        check_neighbours(self.k, features)
        head = LinearMap.of(head_weight, head_bias, features.shape[1])
        exact = torch.promote_types(features.dtype, torch.float32)

        def guide(piece: Tensor) -> Tensor:
            return (normalize(piece) * -energy(head(piece))[:, None]).to(exact)

        bank = in_pieces(guide, features)

        def guided_energy(piece: Tensor) -> Tensor:
            similarities = normalize(piece).to(exact) @ bank.T
            return energy(head(piece)) * precise(similarities.topk(self.k, dim=1).values).mean(dim=1)

        return partial(in_pieces, guided_energy, width=features.shape[1], bank=len(bank))
