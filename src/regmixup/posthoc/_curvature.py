"""The two Kronecker factors of the last layer's curvature, averaged over the train set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class KroneckerFactors:
    """Means over the train set, float64: A (D, D) of phi phi^T, and G (K, K) of the cross-entropy's curvature."""

    features: Tensor
    logits: Tensor


def kronecker_factors(
    features: Tensor,
    logits: Tensor,
    *,
    fisher: Literal["exact", "sampled"] = "exact",
    average: Literal["exact", "running"] = "exact",
    batch_size: int = 128,
    generator: torch.Generator | None = None,
) -> KroneckerFactors:
    """A and G of features phi (N, D) and logits (N, K), with p = softmax(logits), batch by batch.

    fisher: "exact" averages diag(p) - p p^T; "sampled" averages (p - e_y)(p - e_y)^T with one y ~ p for each sample.
    average: "exact" is the mean over all samples; "running" is F <- rho_k F + (1 - rho_k) F_k over the batches' means
    F_k, k = 0, 1, ..., with rho_k = min(1 - 1 / (k + 1), 0.95), as the published code has it.
    """
    uniform = torch.rand(len(logits), dtype=torch.float64, generator=generator) if fisher == "sampled" else None
    mean_features = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64)
    mean_logits = torch.zeros(logits.shape[1], logits.shape[1], dtype=torch.float64)
    for k, start in enumerate(range(0, len(logits), batch_size)):
        part = slice(start, start + batch_size)
        phi, probs = features[part].double(), logits[part].double().softmax(dim=1)
        if uniform is None:
            curvature = probs.mean(dim=0).diag() - probs.T @ probs / len(probs)
        else:
            residual = probs - _sampled(probs, uniform[part])
            curvature = residual.T @ residual / len(probs)
        share = len(phi) / (start + len(phi)) if average == "exact" else max(1 / (k + 1), 0.05)
        mean_features.lerp_(phi.T @ phi / len(phi), share)
        mean_logits.lerp_(curvature, share)
    return KroneckerFactors(mean_features, mean_logits)


def _sampled(probs: Tensor, uniform: Tensor) -> Tensor:
    """One-hot classes drawn from each row, one uniform number each: (N, K)."""
    cumulated = probs.cumsum(dim=1)
    drawn = (cumulated < uniform[:, None] * cumulated[:, -1:]).sum(dim=1)
    return torch.zeros_like(probs).scatter_(1, drawn[:, None], 1.0)
