"""Features of a made-up network: a mixture with one Gaussian for each class, and samples far from all of them."""

from typing import NamedTuple

import torch
from torch import Tensor

from regmixup.types import Predictions

CLASSES, WIDTH = 3, 6


class Mixture(NamedTuple):
    features: Tensor
    labels: Tensor


def mixture(count, seed, *, far=0.0):
    """count samples of CLASSES unlike Gaussians in WIDTH dimensions, float64, shifted by `far` in all of them."""
    fixed = torch.Generator().manual_seed(100)
    means = 4 * torch.randn(CLASSES, WIDTH, generator=fixed, dtype=torch.float64)
    shapes = torch.eye(WIDTH) + torch.randn(CLASSES, WIDTH, WIDTH, generator=fixed, dtype=torch.float64) / 4
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    noise = torch.randn(count, 1, WIDTH, generator=generator, dtype=torch.float64)
    return Mixture(means[labels] + (noise @ shapes[labels]).squeeze(1) + far, labels)


def linear_head():
    generator = torch.Generator().manual_seed(101)
    weight = torch.randn(CLASSES, WIDTH, generator=generator, dtype=torch.float64)
    return weight / 4, torch.randn(CLASSES, generator=generator, dtype=torch.float64)


def predictions(count, seed, *, far=0.0, dataset="toy/test", rectified=True):
    features, labels = mixture(count, seed, far=far)
    features = features.relu() if rectified else features
    weight, bias = linear_head()
    return Predictions(
        features @ weight.T + bias, labels, features=features, head_weight=weight, head_bias=bias, dataset=dataset
    )
