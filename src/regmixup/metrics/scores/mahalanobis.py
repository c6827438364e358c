"""Mahalanobis distances in feature space: to the nearest class, and relative to all train features together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.fisher import ClassMoments
from regmixup.metrics.outcomes import check_labels
from regmixup.metrics.scores.features import FeatureScore, FittedScore, check_train


@dataclass(frozen=True, kw_only=True)
class Mahalanobis(FeatureScore):
    """min_c (phi - mu_c)^T Sigma_c^-1 (phi - mu_c), mu_c and Sigma_c being mean and covariance of class c.

    covariance: "classwise", Sigma_c = 1 / N_c sum over class c of (phi_n - mu_c)(phi_n - mu_c)^T (the paper's FSDE);
    or "tied", one Sigma for all, their average weighted by N_c (Lee et al., 2018).

    500 samples of a class cannot fill 640 dimensions, and dead units fill none: Sigma_c is singular. The value depends
    on the way out, so it is a field, and the fitted score's `facts` record what it came to.
    jitter: times the mean within-class variance tr(Sigma) / D, it is added to the diagonal of every covariance.
    Class-wise factors take K D^2 float64 numbers, 0.3 GB for 100 classes and 640 features: tie them for 1,000 classes
    and 2,048 features.

    >>> features, labels = torch.tensor([[-1.0], [1.0], [7.0], [13.0]]), torch.tensor([0, 0, 1, 1])
    >>> score = Mahalanobis(jitter=0.0).fit(features, labels)  # variances 1 and 9
    >>> score(torch.tensor([[2.0], [6.0]]))  # 2^2 / 1 and 4^2 / 9
    tensor([4.0000, 1.7778], dtype=torch.float64)
    """

    covariance: Literal["classwise", "tied"] = "classwise"
    jitter: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("jitter", self.jitter, least=0)

    def fit(self, features: Tensor, labels: Tensor) -> FittedScore:
        """Fit on train features (N, D) with labels (N,); classes without a sample are left out."""
        features, index, num_classes = by_class(features, labels)
        if self.covariance == "tied":
            moments = ClassMoments.of(features, index, num_classes)
            covariances = [moments.scatter / len(features)]
        else:
            classes = [ClassMoments.of(features[index == c], index[index == c] - c, 1) for c in range(num_classes)]
            covariances = [moments.scatter / moments.count for moments in classes]
            moments = ClassMoments(
                torch.cat([moments.count for moments in classes]),
                torch.cat([moments.mean for moments in classes]),
                sum((moments.scatter for moments in classes), start=torch.zeros_like(covariances[0])),
            )
        within = moments.scatter / len(features)
        centre, _ = background(moments)
        ridge = self.jitter * float(within.trace()) / len(within)
        nearest = squared_distance(moments.mean - centre, covariances, ridge)
        return FittedScore(self, {"ridge": ridge}, lambda piece: nearest(piece - centre), len(centre))


@dataclass(frozen=True, kw_only=True)
class RelativeMahalanobis(FeatureScore):
    """min_c d(phi; mu_c, Sigma) - d(phi; mu, Sigma_0) (Ren et al., 2021).

    d is the squared Mahalanobis distance, Sigma the tied covariance of `Mahalanobis`, mu and Sigma_0 mean and
    covariance of all train features. Directions in which the classes do not differ cancel.
    jitter: times the mean within-class variance tr(Sigma) / D, it is added to both diagonals.

    >>> features, labels = torch.tensor([[-1.0], [1.0], [5.0], [7.0]]), torch.tensor([0, 0, 1, 1])
    >>> score = RelativeMahalanobis(jitter=0.0).fit(features, labels)  # Sigma = 1, mu = 3, Sigma_0 = 10
    >>> score(torch.tensor([[3.0], [13.0]]))  # 9 - 0 and 49 - 10
    tensor([ 9., 39.], dtype=torch.float64)
    """

    jitter: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("jitter", self.jitter, least=0)

    def fit(self, features: Tensor, labels: Tensor) -> FittedScore:
        """Fit on train features (N, D) with labels (N,); classes without a sample are left out."""
        moments = ClassMoments.of(*by_class(features, labels))
        within = moments.scatter / moments.count.sum()
        centre, overall = background(moments)
        ridge = self.jitter * float(within.trace()) / len(within)
        to_class = squared_distance(moments.mean - centre, [within], ridge)
        to_all = squared_distance(torch.zeros_like(centre)[None], [overall], ridge)
        return FittedScore(
            self, {"ridge": ridge}, lambda piece: to_class(piece - centre) - to_all(piece - centre), len(centre)
        )


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
            if c < len(factors):
                white = torch.linalg.solve_triangular(factors[c], features.T, upper=False)
            distance = torch.minimum(distance, (white - mean[:, None]).square().sum(dim=0))
        return distance

    return nearest


def _factor(covariance: Tensor, ridge: float) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(covariance + ridge * torch.eye(len(covariance)).to(covariance))
    if failed:
        raise ValueError(f"a covariance of the features is singular with {ridge:g} on its diagonal: raise jitter")
    return factor


def by_class(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return checked train features, labels renumbered 0, 1, ... among the classes present, and the number of these."""
    features = check_train(features)
    classes, index = check_labels(labels, len(features)).unique(return_inverse=True)
    return features, index, len(classes)


def background(moments: ClassMoments) -> tuple[Tensor, Tensor]:
    """Return the mean (D,) and the covariance (D, D) of the samples of all classes together."""
    centre, rows = moments.between()
    return centre, (moments.scatter + rows.T @ rows) / moments.count.sum()
