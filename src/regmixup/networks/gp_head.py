"""A Gaussian process as the last layer, by random features and a Laplace covariance: the head of SNGP."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regmixup.config import Count, Positive
from regmixup.mixing import full_precision
from regmixup.networks.contract import Head


@dataclass(frozen=True, kw_only=True)
class GPHead(Head):
    """Logits from cosine random features, with a variance that grows away from the train data (Liu et al., 2020).

    phi(h) = cos(h W + b), with W and b frozen;  logits = phi(h) beta;
    P = sum over clean train images of phi phi^T;  v(h) = s phi^T (s I + P)^-1 phi, one variance for all classes.
    That is Bayesian linear regression in phi with prior variance 1 and noise variance s. The forward pass gives the
    posterior mean; `posthoc.MeanField` and `posthoc.MonteCarlo` turn mean and variance into probabilities.

    >>> head = GPHead(num_features=64).build(feature_dim=16, num_classes=3)
    >>> tuple(head(torch.zeros(5, 16)).shape), tuple(head.variance(torch.zeros(5, 16)).shape)
    ((5, 3), (5, 1))
    """

    num_features: Count = 1024
    """Random features: columns of W."""
    kernel_std: Positive = 0.05
    """Spread of W, whose columns are random orthogonal directions with the lengths of Gaussian vectors; its inverse is
    the length scale of the kernel."""
    ridge: Positive = 1.0
    """s: noise variance of the regression."""

    def build(self, feature_dim: int, num_classes: int) -> nn.Module:
        return GaussianProcess(self, feature_dim, num_classes)


class GaussianProcess(nn.Module):
    """Module of `GPHead`. Buffers: the frozen projection and phase, the precision P and (I + P / s)^-1."""

    projection: Tensor
    phase: Tensor
    precision: Tensor
    covariance: Tensor

    def __init__(self, config: GPHead, feature_dim: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        size = config.num_features
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_classes, size)))
        self.register_buffer("projection", config.kernel_std * orthogonal_features(feature_dim, size))
        self.register_buffer("phase", 2 * math.pi * torch.rand(size))
        self.register_buffer("precision", torch.zeros(size, size))
        self.register_buffer("covariance", torch.eye(size))

    def random_features(self, features: Tensor) -> Tensor:
        """Return phi, (N, num_features), without autocast: an angle needs full precision."""
        with torch.autocast(features.device.type, enabled=False):
            return torch.cos(features.to(self.projection.dtype) @ self.projection + self.phase)

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.linear(self.random_features(features), self.weight)

    def variance(self, features: Tensor) -> Tensor:
        """Return the variance of every logit, (N, 1); the prior's until the precision has seen the train data."""
        phi = self.random_features(features)
        with torch.autocast(features.device.type, enabled=False):
            return ((phi @ self.covariance) * phi).sum(dim=1, keepdim=True)

    @torch.no_grad()
    def finalize(self, features: Iterable[Tensor]) -> None:
        """Sum P over one clean pass with the final weights, so that mixed images never enter it."""
        precision = full_precision(self.precision.zero_())  # in bfloat16 a sum stops growing at 256 images
        for batch in features:
            phi = self.random_features(batch).to(precision.dtype)
            with torch.autocast(batch.device.type, enabled=False):
                precision.addmm_(phi.T, phi)
        if not precision.any():
            raise ValueError("batches must hold train images for the covariance, got none")
        self.precision.copy_(precision)
        # In float64, which not every accelerator has: P has eigenvalues from 0 to the number of train images.
        posterior = torch.eye(len(precision), dtype=torch.float64) + precision.cpu().double() / self.config.ridge
        self.covariance.copy_(torch.cholesky_inverse(torch.linalg.cholesky(posterior)))


def orthogonal_features(inputs: int, outputs: int) -> Tensor:
    """Draw random directions (D, F), orthogonal in blocks of `inputs` columns, with the lengths of Gaussian vectors."""
    blocks = [nn.init.orthogonal_(torch.empty(inputs, inputs)) for _ in range(math.ceil(outputs / inputs))]
    return torch.cat(blocks, dim=1)[:, :outputs] * torch.randn(inputs, outputs).norm(dim=0)
