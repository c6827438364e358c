"""Cosines between features and class vectors as the last layer: the head of SURE."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.config import Positive
from regmixup.networks.contract import Head


@dataclass(frozen=True, kw_only=True)
class CosineHead(Head):
    """scale cos(z, w_c): a linear layer without bias whose features and rows have length 1 (Gidaris et al., 2018).

    Logits lie between -scale and scale, so the length of a feature no longer makes a prediction certain.

    >>> head = CosineHead(scale=8.0).build(feature_dim=2, num_classes=2)
    >>> head.weight.data = torch.tensor([[3.0, 0.0], [0.0, 0.1]])
    >>> head(torch.tensor([[10.0, 0.0]])).tolist()
    [[8.0, 0.0]]
    """

    scale: Positive = 8.0
    """SURE's value on CIFAR."""

    def build(self, feature_dim: int, num_classes: int) -> nn.Module:
        return Cosine(self.scale, feature_dim, num_classes)


class Cosine(nn.Module):
    """Module of `CosineHead`, initialised as a linear layer."""

    def __init__(self, scale: float, feature_dim: int, num_classes: int) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(nn.Linear(feature_dim, num_classes, bias=False).weight.detach())

    def forward(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):  # lengths need float32
            features = features.to(self.weight.dtype)
            return self.scale * F.normalize(features, dim=1) @ F.normalize(self.weight, dim=1).T
