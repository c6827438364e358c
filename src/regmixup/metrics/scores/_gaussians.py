"""Gaussians in feature space: their means, Cholesky factors, and how far a feature is from the nearest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from regmixup.metrics.fisher import ClassMoments
from regmixup.metrics.ordering import precise
from regmixup.metrics.scores._features import check_train


@dataclass(frozen=True, eq=False)
class Gaussians:
    """factors: (K, D, D), L with L L^T = Sigma, or one for all, (1, D, D). means: (K, D), L^-1 mu."""

    factors: Tensor
    means: Tensor

    @classmethod
    def of(cls, means: Tensor, covariances: Iterable[Tensor], ridge: float) -> Gaussians:
        """means: (K, D). covariances: K or one of (D, D), to whose diagonals the ridge is added."""
        factors = torch.stack([_factor(covariance, ridge) for covariance in covariances])
        return cls(factors, torch.linalg.solve_triangular(factors, means[:, :, None], upper=False).squeeze(2))

    def nearest(self, features: Tensor) -> Tensor:
        """min_c (phi - mu_c)^T Sigma_c^-1 (phi - mu_c), the squared length of L^-1 phi - L^-1 mu: (N, D) -> (N,)."""
        nearest = features.new_full((len(features),), torch.inf)
        white = features.T
        for c, mean in enumerate(self.means):
            if c < len(self.factors):
                white = torch.linalg.solve_triangular(self.factors[c], features.T, upper=False)
            nearest = torch.minimum(nearest, (white - mean[:, None]).square().sum(dim=0))
        return nearest


def _factor(covariance: Tensor, ridge: float) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(covariance + ridge * torch.eye(len(covariance)).to(covariance))
    if failed:
        raise ValueError(f"a covariance of the features is singular with {ridge:g} on its diagonal: raise jitter")
    return factor


def by_class(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, int]:
    """Checked train features, labels renumbered 0, 1, ... among the classes that occur, and how many these are."""
    features, labels = check_train(features), torch.as_tensor(labels)
    if labels.shape != features.shape[:1] or labels.is_floating_point():
        raise ValueError(
            f"labels must be integers of shape ({len(features)},), got {labels.dtype} {tuple(labels.shape)}"
        )
    classes, index = labels.unique(return_inverse=True)
    return features, index, len(classes)


def background(moments: ClassMoments) -> tuple[Tensor, Tensor]:
    """The mean (D,) and the covariance (D, D) of the samples of all classes together."""
    count = precise(moments.count)
    centre = count @ moments.mean / count.sum()
    rows = count.sqrt()[:, None] * (moments.mean - centre)
    return centre, (moments.scatter + rows.T @ rows) / count.sum()
