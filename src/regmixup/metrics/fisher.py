"""The Fisher criterion: how far apart classes lie in feature space, relative to how wide they are.

With N_k samples of class k, their mean mu_k and the mean mu of all samples,

    S_W = sum_k sum_{n in k} (phi_n - mu_k)(phi_n - mu_k)^T,    S_B = sum_k N_k (mu_k - mu)(mu_k - mu)^T,
    criterion = trace((S_W + r tr(S_W) / D I)^-1 S_B).

Dead units make S_W singular, hence the regulariser r; whoever reports a value states it. The criterion needs no more
than the class moments, which are small and can be merged, so the features themselves need not be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.outcomes import check_labels
from regmixup.metrics.pieces import pieces_of, precise
from regmixup.types import Predictions, as_tensor

_PIECE = 2**22


@dataclass(frozen=True)
class ClassMoments:
    """count: (K,) samples of every class; mean: (K, D), 0 for absent classes; scatter: (D, D), S_W above.

    Moments of two disjoint sets add up to those of their union:

    >>> features, labels = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 4
    >>> halves = [ClassMoments.of(features[part], labels[part], 4) for part in (slice(15), slice(15, 40))]
    >>> round((halves[0] + halves[1]).criterion() / fisher_criterion(features, labels), 9)
    1.0
    """

    count: Tensor
    mean: Tensor
    scatter: Tensor

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, num_classes: int) -> ClassMoments:
        """Return the moments of features (N, D) with labels (N,) in [0, num_classes)."""
        features = check_features(features, finite=True)
        labels = check_labels(labels, len(features), num_classes)
        width = features.shape[1]
        count = torch.bincount(labels, minlength=num_classes)
        pieces = pieces_of(features, _PIECE)
        mean = precise(features[:0]).new_zeros(num_classes, width)
        for rows in pieces:
            mean.index_add_(0, labels[rows], precise(features[rows]))
        mean /= count.clamp(min=1)[:, None]
        scatter = mean.new_zeros(width, width)
        for rows in pieces:
            centred = precise(features[rows]) - mean[labels[rows]]
            scatter.addmm_(centred.T, centred)
        return cls(count, mean, scatter)

    def __add__(self, other: ClassMoments) -> ClassMoments:
        """Return those of the union: S_W + S'_W + sum_k N_k N'_k / (N_k + N'_k) (mu'_k - mu_k)(mu'_k - mu_k)^T."""
        count = self.count + other.count
        share = precise(other.count) / count.clamp(min=1)
        apart = other.mean - self.mean
        between = (apart * (self.count * share)[:, None]).T @ apart
        return ClassMoments(count, self.mean + share[:, None] * apart, self.scatter + other.scatter + between)

    @classmethod
    def stored(cls, predictions: Predictions) -> ClassMoments | None:
        """Return the moments that predictions hold, the inverse of `packed`; or those of their features; or None."""
        count, mean, triangle = predictions.class_count, predictions.class_mean, predictions.class_scatter
        if count is None or mean is None or triangle is None:
            features, labels = predictions.features, predictions.labels
            return cls.of(features, labels, predictions.logits.shape[1]) if features is not None else None
        width = mean.shape[1]
        if len(triangle) != width * (width + 1) // 2:
            raise ValueError(f"class_scatter must hold {width * (width + 1) // 2} numbers, got {len(triangle)}")
        lower = triangle.new_zeros(width, width)
        lower[tuple(torch.tril_indices(width, width))] = triangle
        return cls(count, mean, lower + lower.tril(-1).T)

    def packed(self) -> dict[str, Tensor]:
        """Return fields of `Predictions`, on the CPU; of the symmetric scatter the lower triangle, by rows."""
        width = len(self.scatter)
        triangle = self.scatter[tuple(torch.tril_indices(width, width, device=self.scatter.device))]
        return {"class_count": self.count.cpu(), "class_mean": self.mean.cpu(), "class_scatter": triangle.cpu()}

    def between(self) -> tuple[Tensor, Tensor]:
        """Return mu (D,), and M (K, D) with S_B = M^T M: one row per class, sqrt(N_k) (mu_k - mu)."""
        count = precise(self.count)
        centre = count @ self.mean / count.sum()
        return centre, count.sqrt()[:, None] * (self.mean - centre)

    def criterion(self, *, regulariser: float = 1e-6) -> float:
        """Return trace((S_W + r tr(S_W) / D I)^-1 S_B), r being the `regulariser`."""
        check_number("regulariser", regulariser, least=0)
        spread = float(self.scatter.trace())
        if not spread > 0:
            raise ValueError("features must vary within some class, got a within-class scatter of 0")
        width = len(self.scatter)
        within = self.scatter + regulariser * spread / width * torch.eye(width).to(self.scatter)
        factor, failed = torch.linalg.cholesky_ex(within)
        if failed:
            raise ValueError(f"the within-class scatter is singular: raise the regulariser, got {regulariser!r}")
        # The trace is the squared length of L^-1 M^T, where L L^T = S_W.
        _, rows = self.between()
        return float(torch.linalg.solve_triangular(factor, rows.T, upper=False).square().sum())


def fisher_criterion(features: Tensor, labels: Tensor, *, regulariser: float = 1e-6) -> float:
    """Return the criterion above for features (N, D) with labels (N,); `regulariser` is r, and 0 turns it off.

    >>> features = torch.tensor([[0.0], [2.0], [10.0], [12.0]])  # S_W = 4, S_B = 4 * 25
    >>> round(fisher_criterion(features, torch.tensor([0, 0, 1, 1]), regulariser=0.0), 9)
    25.0
    """
    labels = as_tensor("labels", labels)
    num_classes = int(labels.max()) + 1 if labels.numel() else 1
    return ClassMoments.of(features, labels, max(1, num_classes)).criterion(regulariser=regulariser)


def check_features(features: Tensor, *, finite: bool = False) -> Tensor:
    """Return features checked to be floating-point (N, D) and, if asked, finite."""
    features = as_tensor("features", features).detach()
    if features.ndim != 2 or not features.is_floating_point() or features.shape[1] == 0:
        raise ValueError(
            f"features must be floating point of shape (N, D), got {features.dtype} {tuple(features.shape)}"
        )
    if finite and not torch.isfinite(features).all():
        raise ValueError("features must be finite, got NaN or infinite values")
    return features
