"""Mahalanobis distances in feature space: to the nearest class, and relative to all train features together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import Checked, NotNegative
from regmixup.metrics.fisher import ClassMoments
from regmixup.metrics.outcomes import check_labels
from regmixup.metrics.scores.features import FittedScore, in_pieces, train_features


@dataclass(frozen=True, kw_only=True)
class Mahalanobis(Checked):
    """min_c (phi - mu_c)^T Sigma_c^-1 (phi - mu_c), mu_c and Sigma_c being mean and covariance of class c.

    covariance: "classwise", Sigma_c = 1 / N_c sum over class c of (phi_n - mu_c)(phi_n - mu_c)^T (the paper's FSDE);
    or "tied", one Sigma for all, their average weighted by N_c (Lee et al., 2018).

    500 samples of a class cannot fill 640 dimensions, and dead units fill none: Sigma_c is singular. The value depends
    on the way out, so it is a field.
    jitter: times the mean within-class variance tr(Sigma) / D, it is added to the diagonal of every covariance.
    Class-wise factors take K D^2 float64 numbers, 0.3 GB for 100 classes and 640 features: tie them for 1,000 classes
    and 2,048 features.

    >>> features, labels = torch.tensor([[-1.0], [1.0], [7.0], [13.0]]), torch.tensor([0, 0, 1, 1])
    >>> score = Mahalanobis(jitter=0.0).fit(features, labels)  # variances 1 and 9
    >>> score(torch.tensor([[2.0], [6.0]]))  # 2^2 / 1 and 4^2 / 9
    tensor([4.0000, 1.7778], dtype=torch.float64)
    """

    covariance: Literal["classwise", "tied"] = "classwise"
    jitter: NotNegative = 1e-3

    def fit(self, features: Tensor, labels: Tensor) -> FittedScore:
        """Fit on train features (N, D) with labels (N,); classes without a sample are left out."""
        features, index, num_classes = by_class(features, labels)
        moments = ClassMoments.of(features, index, num_classes)
        within = moments.scatter / len(features)
        covariances = [within]
        if self.covariance == "classwise":
            covariances = []
            for c in range(num_classes):
                members = features[index == c]
                alone = ClassMoments.of(members, index.new_zeros(len(members)), 1)
                covariances.append(alone.scatter / alone.count)
        centre, _ = moments.between()
        ridge = self.jitter * float(within.trace()) / len(within)
        nearest = squared_distance(moments.mean - centre, covariances, ridge)
        return partial(in_pieces, lambda piece: nearest(piece - centre), width=features.shape[1])


@dataclass(frozen=True, kw_only=True)
class RelativeMahalanobis(Checked):
    """min_c d(phi; mu_c, Sigma) - d(phi; mu, Sigma_0) (Ren et al., 2021).

    d is the squared Mahalanobis distance, Sigma the tied covariance of `Mahalanobis`, mu and Sigma_0 mean and
    covariance of all train features. Directions in which the classes do not differ cancel.
    jitter: times the mean within-class variance tr(Sigma) / D, it is added to both diagonals.

    >>> features, labels = torch.tensor([[-1.0], [1.0], [5.0], [7.0]]), torch.tensor([0, 0, 1, 1])
    >>> score = RelativeMahalanobis(jitter=0.0).fit(features, labels)  # Sigma = 1, mu = 3, Sigma_0 = 10
    >>> score(torch.tensor([[3.0], [13.0]]))  # 9 - 0 and 49 - 10
    tensor([ 9., 39.], dtype=torch.float64)
    """

    jitter: NotNegative = 1e-3

    def fit(self, features: Tensor, labels: Tensor) -> FittedScore:
        """Fit on train features (N, D) with labels (N,); classes without a sample are left out."""
        features, index, num_classes = by_class(features, labels)
        moments = ClassMoments.of(features, index, num_classes)
        within = moments.scatter / len(features)
        centre, spread = moments.between()
        overall = within + spread.T @ spread / len(features)
        ridge = self.jitter * float(within.trace()) / len(within)
        to_class = squared_distance(moments.mean - centre, [within], ridge)
        to_all = squared_distance(torch.zeros_like(centre)[None], [overall], ridge)

        def relative(piece: Tensor) -> Tensor:
            return to_class(piece - centre) - to_all(piece - centre)

        return partial(in_pieces, relative, width=features.shape[1])


def by_class(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return checked train features, labels renumbered 0, 1, ... among the classes present, and the number of these."""
    features = train_features(features)
    classes, index = check_labels(labels, len(features)).unique(return_inverse=True)
    return features, index, len(classes)


def squared_distance(means: Tensor, covariances: Iterable[Tensor], ridge: float) -> Callable[[Tensor], Tensor]:
    """Return the function from features (N, D) to min_c (phi - mu_c)^T Sigma_c^-1 (phi - mu_c), (N,).

    means: (K, D); covariances: (D, D), one per class or one for all; ridge: what is added to their diagonals. With
    L L^T = Sigma the distance is the squared length of L^-1 phi - L^-1 mu.
    """
    factors = torch.stack([_factor(covariance, ridge) for covariance in covariances])
    white_means = torch.linalg.solve_triangular(factors, means[:, :, None], upper=False).squeeze(2)

    def nearest(features: Tensor) -> Tensor:
        distance = features.new_full((len(features),), torch.inf)
        white = features.T
        for c, mean in enumerate(white_means):
            if c < len(factors):  # only once where all classes share a covariance
                white = torch.linalg.solve_triangular(factors[c], features.T, upper=False)
            distance = torch.minimum(distance, (white - mean[:, None]).square().sum(dim=0))
        return distance

    return nearest


def _factor(covariance: Tensor, ridge: float) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(covariance + ridge * torch.eye(len(covariance)).to(covariance))
    if failed:
        raise ValueError(f"a covariance of the features is singular with {ridge:g} on its diagonal: raise jitter")
    return factor
