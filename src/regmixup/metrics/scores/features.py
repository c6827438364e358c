"""Scores of features: what they share, and the distance to the k-th nearest train sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from regmixup.config import Checked, Count
from regmixup.metrics.fisher import check_features
from regmixup.metrics.pieces import precise

_PIECE = 2**22
_DISTANCES = 2**25  # at a time

FittedScore = Callable[[Tensor], Tensor]
"""From features (N, D) to float64 scores (N,), larger for samples more out-of-distribution."""


def in_pieces(
    function: Callable[[Tensor], Tensor], features: Tensor, *, width: int | None = None, bank: int = 0
) -> Tensor:
    """Return function(features), computed for a piece of samples at a time, each in float64.

    width: D of the features that a score was fitted on.
    bank: the number of train samples that each sample is compared with, which limits the pieces.
    """
    features = check_features(features)
    if width is not None and features.shape[1] != width:
        raise ValueError(f"features must be (N, {width}), as those of the fit, got {tuple(features.shape)}")
    rows = max(1, _DISTANCES // bank if bank else _PIECE // features.shape[1])
    return torch.cat([function(precise(piece)) for piece in features.split(rows)])


def mean_of(function: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
    """Return the mean of function(features) over the samples, computed as in `in_pieces`."""
    sums = in_pieces(lambda piece: function(piece).sum(dim=0, keepdim=True), features)
    return sums.sum(dim=0) / len(features)


def train_features(features: Tensor) -> Tensor:
    """Return features to fit a score on, checked to be finite and those of some samples."""
    features = check_features(features, finite=True)
    if len(features) == 0:
        raise ValueError("features must be those of some train samples, got none")
    return features


@dataclass(frozen=True, kw_only=True)
class KNN(Checked):
    """Distance to the k-th nearest train feature, both of length 1 (Sun et al., 2022).

    k: None for the paper's, 50 for CIFAR-10, 200 for CIFAR-100, 1000 for ImageNet, and for any other train set that of
    the one with the nearest number of classes, see `default_k`. A train sample is its own nearest neighbour.
    The train features are kept, and the neighbour is found, in their own precision, at least float32; its distance is
    then taken in float64.

    >>> score = KNN(k=2).fit(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]))
    >>> score(torch.tensor([[5.0, 0.0], [0.0, 5.0]])).square().round(decimals=6)
    tensor([2., 2.], dtype=torch.float64)
    """

    k: Count | None = None

    def fit(self, features: Tensor, labels: Tensor | None = None) -> FittedScore:
        """Fit on train features (N, D), N >= k. labels: (N,), needed for the default k alone."""
        features = train_features(features)
        if self.k is None and labels is None:
            raise ValueError("labels must be given for the default k, which their classes choose, got None")
        k = self.k if self.k is not None else default_k(labels)  # type: ignore[arg-type]
        check_neighbours(k, features)
        exact = torch.promote_types(features.dtype, torch.float32)
        # About their mean vectors are short, and little is lost where |a|^2 + |b|^2 - 2 a b cancels.
        centre = mean_of(normalize, features)
        bank = in_pieces(lambda piece: (normalize(piece) - centre).to(exact), features)
        squares = bank.square().sum(dim=1)

        def kth_distance(piece: Tensor) -> Tensor:
            centred = normalize(piece) - centre
            # A sample's own length changes no order among its neighbours.
            order = (centred.to(exact) @ bank.T).mul_(-2).add_(squares)
            kth = order.topk(k, dim=1, largest=False).indices[:, -1]
            return (centred - precise(bank[kth])).norm(dim=1)

        return partial(in_pieces, kth_distance, width=features.shape[1], bank=len(bank))


def check_neighbours(k: int, features: Tensor) -> None:
    if k > len(features):
        raise ValueError(f"k must be at most the number of train samples, {len(features)}, got {k}")


def default_k(labels: Tensor) -> int:
    """Return 50 up to 31 classes, 200 up to 316, 1000 beyond: the k of the nearest of 10, 100 and 1000 classes.

    Sun et al. (2022) chose k = 50 on CIFAR-10, 200 on CIFAR-100 and 1000 on ImageNet; near is by ratio.

    >>> [default_k(torch.arange(classes)) for classes in (10, 31, 32, 316, 317)]
    [50, 50, 200, 200, 1000]
    """
    nearest = round(math.log10(len(labels.unique())))
    if nearest <= 1:
        return 50
    return 200 if nearest == 2 else 1000
