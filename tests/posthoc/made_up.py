"""Predictions of a made-up linear head, in float64, and the covariance that a Laplace map gives their logits."""

import torch

from regmixup.types import Predictions


def linear_head(count=60, dim=4, classes=3, *, seed=0, bias=True, spread=1.0, head_seed=9, dataset="toy/train"):
    """Features, a head and labels drawn from its softmax. spread scales the logits: above 1, they are overconfident."""
    head = torch.Generator().manual_seed(head_seed)
    weight = torch.randn(classes, dim, generator=head, dtype=torch.float64)
    offset = torch.randn(classes, generator=head, dtype=torch.float64) if bias else None
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    logits = features @ weight.T + (offset if offset is not None else 0)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=generator).squeeze(1)
    return Predictions(
        spread * logits,
        labels,
        features=features,
        head_weight=spread * weight,
        head_bias=spread * offset if offset is not None else None,
        dataset=dataset,
        info={"run": "abc"},
    )


def covariance_of(fitted, features):
    """Sigma(x) = Q_G diag(d(x)) Q_G^T of a fitted Laplace map, (N, K, K)."""
    basis = fitted.class_basis
    return (basis * fitted.spectrum(features)[:, None]) @ basis.T
