"""Distance to the nearest class, relative to the distance to all train features together."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.fisher import ClassMoments
from regmixup.metrics.scores._features import FeatureScore, check_features, in_pieces
from regmixup.metrics.scores._gaussians import Gaussians, background, by_class


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

    def fit(self, features: Tensor, labels: Tensor) -> FittedRelativeMahalanobis:
        """On train features (N, D) with labels (N,); classes without a sample are left out."""
        moments = ClassMoments.of(*by_class(features, labels))
        within = moments.scatter / moments.count.sum()
        centre, overall = background(moments)
        ridge = self.jitter * float(within.trace()) / len(within)
        return FittedRelativeMahalanobis(
            self,
            ridge,
            centre,
            Gaussians.of(moments.mean - centre, [within], ridge),
            Gaussians.of(torch.zeros_like(centre)[None], [overall], ridge),
        )


@dataclass(frozen=True, eq=False)
class FittedRelativeMahalanobis:
    """Features (N, D) -> (N,). ridge: what was added to both diagonals."""

    score: RelativeMahalanobis
    ridge: float
    centre: Tensor = field(repr=False)
    classes: Gaussians = field(repr=False)
    background: Gaussians = field(repr=False)

    def __call__(self, features: Tensor) -> Tensor:
        return in_pieces(self._relative, check_features(features, len(self.centre)))

    def _relative(self, features: Tensor) -> Tensor:
        centred = features - self.centre
        return self.classes.nearest(centred) - self.background.nearest(centred)
