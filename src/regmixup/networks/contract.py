"""The one contract of all networks: images -> features -> logits, with input normalisation inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regmixup.mixing import to_float

Normalization = tuple[tuple[float, ...], tuple[float, ...]]


class Normalize(nn.Module):
    """(x - mean) / std per channel, on pixels in [0, 1]; uint8 pixels are brought there first."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (to_float(x) - self.mean) / self.std


class Classifier(nn.Module):
    """`features(x) -> (N, D)`, then `head`: (N, D) -> logits (N, K).

    backbone: module from normalised images to (N, D). head: module from (N, D) to logits.
    normalize: (mean, std) per channel, or None if the images come normalised.
    """

    def __init__(
        self, backbone: nn.Module, head: nn.Module, *, feature_dim: int, normalize: Normalization | None = None
    ) -> None:
        super().__init__()
        self.normalize = Normalize(*normalize) if normalize is not None else None
        self.backbone = backbone
        self.head = head
        self.feature_dim = feature_dim

    def features(self, x: Tensor) -> Tensor:
        """Penultimate activations, (N, D), of images (N, C, H, W) in uint8 or floating point."""
        x = to_float(x) if self.normalize is None else self.normalize(x)
        return self.backbone(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class GlobalAverage(nn.Module):
    """Mean over all positions: (N, C, H, W) -> (N, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))
