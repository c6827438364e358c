"""Distances to class centroids as the last layer: the head of DUQ."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regmixup.config import Count, Positive, Share
from regmixup.networks.contract import Head


@dataclass(frozen=True, kw_only=True)
class RBFHead(Head):
    """One kernel per class, from 0 to 1, of the distance to its centroid (van Amersfoort et al., 2020).

    K_c(z) = exp(-mean_d (W_c z - e_c)_d^2 / (2 length_scale^2)), with a learned map W_c per class and centroids
    e_c = m_c / n_c that follow the features of their class: after every step
    n_c <- g n_c + (1 - g) |class c|,  m_c <- g m_c + (1 - g) sum over class c of W_c z,  g = momentum.

    The logits are log K_c <= 0, so arg max, softmax and every loss on logits keep their meaning. The nearer the largest
    is to 0, the more certain the model: DUQ's OOD score, minus the largest kernel, ranks images like `max_logit`.

    >>> head = RBFHead(embedding_dim=4).build(feature_dim=8, num_classes=3)
    >>> logits = head(torch.randn(5, 8))
    >>> tuple(logits.shape), bool((logits <= 0).all())
    ((5, 3), True)
    """

    embedding_dim: Count | None = None
    """Rows of W_c; None for as many as there are features."""
    length_scale: Positive = 0.1
    """Width of the kernels; distances are means over the embedding."""
    momentum: Share = 0.999
    """g: the share of the centroids that a step keeps."""
    initial_count: Positive = 13.0
    """n_c before training: about the images of a class in a batch (13 for 128 images of 10 classes)."""

    def build(self, feature_dim: int, num_classes: int) -> nn.Module:
        return RadialBasis(self, feature_dim, num_classes)


class RadialBasis(nn.Module):
    """Module of `RBFHead`. Buffers: the running counts n, (K,), and sums m, (E, K)."""

    counts: Tensor
    sums: Tensor

    def __init__(self, config: RBFHead, feature_dim: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        size = config.embedding_dim if config.embedding_dim is not None else feature_dim
        self.weight = nn.Parameter(nn.init.kaiming_normal_(torch.empty(size, num_classes, feature_dim)))
        self.register_buffer("counts", torch.full((num_classes,), float(config.initial_count)))
        self.register_buffer("sums", config.initial_count * 0.05 * torch.randn(size, num_classes))

    @property
    def centroids(self) -> Tensor:
        """Return e, (E, K)."""
        return self.sums / self.counts

    def embed(self, features: Tensor) -> Tensor:
        """Return W_c z for every class, (N, E, K), without autocast: a kernel this narrow needs float32."""
        with torch.autocast(features.device.type, enabled=False):
            return (features.to(self.weight.dtype) @ self.weight.flatten(0, 1).T).unflatten(1, self.weight.shape[:2])

    def forward(self, features: Tensor) -> Tensor:
        distance = (self.embed(features) - self.centroids).square().mean(dim=1)
        return -distance / (2 * self.config.length_scale**2)

    @torch.no_grad()
    def after_step(self, features: Tensor, y: Tensor) -> None:
        """Move the centroids towards the features of their classes; soft labels count in part."""
        kept = self.config.momentum
        share = nn.functional.one_hot(y.long(), len(self.counts)) if y.ndim == 1 else y
        share = share.to(self.counts.dtype)
        with torch.autocast(features.device.type, enabled=False):
            totals = torch.einsum("nek,nk->ek", self.embed(features), share)
        self.counts.mul_(kept).add_(share.sum(dim=0), alpha=1 - kept)
        self.sums.mul_(kept).add_(totals, alpha=1 - kept)
