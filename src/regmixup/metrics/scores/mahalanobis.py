"""Distance to the nearest class in feature space, each class a Gaussian fitted to its train features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.fisher import ClassMoments
from regmixup.metrics.scores._features import FeatureScore, check_features, in_pieces
from regmixup.metrics.scores._gaussians import Gaussians, background, by_class


@dataclass(frozen=True, kw_only=True)
class Mahalanobis(FeatureScore):
    """min_c (phi - mu_c)^T Sigma_c^-1 (phi - mu_c), mu_c and Sigma_c being mean and covariance of class c.

    covariance: "classwise", Sigma_c = 1 / N_c sum over class c of (phi_n - mu_c)(phi_n - mu_c)^T (the paper's FSDE);
    or "tied", one Sigma for all, their average weighted by N_c (Lee et al., 2018).

    500 samples of a class cannot fill 640 dimensions, and dead units fill none: Sigma_c is singular. The value depends
    on the way out, so both ways are fields, and the fitted score records what they came to.
    jitter: times the mean within-class variance tr(Sigma) / D, it is added to the diagonal of every covariance.
    variance_ratio: first project onto the leading principal components of all train features, as many as hold this
    share of their variance; None keeps the features as they are. Class-wise factors take K D^2 float64 numbers, 0.3 GB
    for 100 classes and 640 features: for 1,000 classes and 2,048 features project, or tie.

    >>> features, labels = torch.tensor([[-1.0], [1.0], [7.0], [13.0]]), torch.tensor([0, 0, 1, 1])
    >>> score = Mahalanobis(jitter=0.0).fit(features, labels)  # variances 1 and 9
    >>> score(torch.tensor([[2.0], [6.0]]))  # 2^2 / 1 and 4^2 / 9
    tensor([4.0000, 1.7778], dtype=torch.float64)
    """

    covariance: Literal["classwise", "tied"] = "classwise"
    jitter: float = 1e-3
    variance_ratio: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("jitter", self.jitter, least=0)
        if self.variance_ratio is not None:
            check_number("variance_ratio", self.variance_ratio, above=0, most=1)

    def fit(self, features: Tensor, labels: Tensor) -> FittedMahalanobis:
        """On train features (N, D) with labels (N,); classes without a sample are left out."""
        features, index, num_classes = by_class(features, labels)
        if self.covariance == "tied":
            moments = ClassMoments.of(features, index, num_classes)
            covariances = [moments.scatter / len(features)]
        else:
            classes = [_moments(features[index == c]) for c in range(num_classes)]
            covariances = [one.scatter / one.count for one in classes]
            moments = ClassMoments(
                torch.cat([one.count for one in classes]),
                torch.cat([one.mean for one in classes]),
                sum((one.scatter for one in classes), start=torch.zeros_like(covariances[0])),
            )
        within = moments.scatter / len(features)
        centre, overall = background(moments)
        means = moments.mean - centre
        basis = None
        if self.variance_ratio is not None:
            basis = _leading(overall, self.variance_ratio)
            within, *covariances = (basis.T @ covariance @ basis for covariance in (within, *covariances))
            means = means @ basis
        ridge = self.jitter * float(within.trace()) / len(within)
        return FittedMahalanobis(self, len(within), ridge, centre, basis, Gaussians.of(means, covariances, ridge))


@dataclass(frozen=True, eq=False)
class FittedMahalanobis:
    """Features (N, D) -> (N,). components: dimensions in which it measures; ridge: what was added to the diagonals."""

    score: Mahalanobis
    components: int
    ridge: float
    centre: Tensor = field(repr=False)
    basis: Tensor | None = field(repr=False)
    classes: Gaussians = field(repr=False)

    def __call__(self, features: Tensor) -> Tensor:
        return in_pieces(self._nearest, check_features(features, len(self.centre)))

    def _nearest(self, features: Tensor) -> Tensor:
        centred = features - self.centre
        return self.classes.nearest(centred if self.basis is None else centred @ self.basis)


def _moments(features: Tensor) -> ClassMoments:
    """Those of one class."""
    return ClassMoments.of(features, torch.zeros(len(features), dtype=torch.int64, device=features.device), 1)


def _leading(covariance: Tensor, variance_ratio: float) -> Tensor:
    """(D, d) the fewest principal directions that hold this share of the variance."""
    values, vectors = torch.linalg.eigh(covariance)
    share = values.flip(0).clamp(min=0).cumsum(dim=0) / values.clamp(min=0).sum()
    return vectors.flip(1)[:, : int((share < variance_ratio).sum()) + 1]
