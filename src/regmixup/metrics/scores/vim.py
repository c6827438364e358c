"""Virtual-logit matching: the energy, and what of the feature lies where train features do not go."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regmixup.config import check_count
from regmixup.metrics.scores._features import FeatureScore, LinearHead, check_features, check_train, in_pieces
from regmixup.metrics.scores.logit_scores import energy


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
        """On train features (N, D) and the linear head's weight (K, D) and bias (K,)."""
        features = check_train(features)
        width = features.shape[1]
        head = LinearHead.of(head_weight, head_bias, width)
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
    head: LinearHead = field(repr=False)

    def __call__(self, features: Tensor) -> Tensor:
        return in_pieces(self._virtual, check_features(features, self.head.width))

    def _virtual(self, features: Tensor) -> Tensor:
        length = ((features - self.origin) @ self.residual).norm(dim=1)
        return self.alpha * length + energy(self.head(features))
