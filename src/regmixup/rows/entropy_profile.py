"""Entropy along interpolations between test images: the data of the paper's Figure 3."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from regmixup.metrics.scores import score_all
from regmixup.types import Predictions


@dataclass(frozen=True)
class EntropyProfile:
    """lam: (L,); counts: (L, B) pairs per entropy bin; edges: (B + 1,) from 0 to log K; mean: (L,) mean entropy."""

    lam: Tensor
    counts: Tensor
    edges: Tensor
    mean: Tensor


def path_entropy(predictions: Predictions) -> Tensor:
    """Entropies of a `path:` set's predictions, (pairs, lambdas): of their `probs` where they have some."""
    try:
        pairs, lambdas = int(predictions.info["pairs"]), int(predictions.info["lambdas"])
    except KeyError:
        raise ValueError(
            f"entropy_profile needs predictions of a `path:` set, got those of {predictions.dataset!r}"
        ) from None
    if pairs * lambdas != len(predictions):
        raise ValueError(f"{predictions.dataset} says {pairs} x {lambdas} samples, got {len(predictions)}")
    return score_all(predictions, names=["entropy"])["entropy"].reshape(pairs, lambdas)


def entropy_profile(predictions: Predictions, *, num_bins: int = 40) -> EntropyProfile:
    """Histogram the entropy of a `path:` set's predictions for every lambda."""
    values = path_entropy(predictions)
    edges = torch.linspace(0, math.log(predictions.logits.shape[1]), num_bins + 1, dtype=values.dtype)
    index = torch.bucketize(values, edges).sub(1).clamp(0, num_bins - 1)
    counts = torch.nn.functional.one_hot(index, num_bins).sum(dim=0)
    return EntropyProfile(torch.linspace(0, 1, values.shape[1], dtype=values.dtype), counts, edges, values.mean(dim=0))
