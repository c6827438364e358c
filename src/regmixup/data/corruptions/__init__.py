"""Corruptions in the manner of CIFAR-C and ImageNet-C (Hendrycks and Dietterich, 2019), batched in torch."""

from __future__ import annotations

import torch
from torch import Tensor

from regmixup.data.corruptions.constants import CONSTANTS
from regmixup.data.corruptions.pixels import PIXELS
from regmixup.mixing import to_float
from regmixup.names import check_name

CORRUPTIONS = PIXELS

__all__ = ["CORRUPTIONS", "corrupt"]


def corrupt(images: Tensor, name: str, *, severity: int, generator: torch.Generator | None = None) -> Tensor:
    """Corrupt uint8 images (N, C, H, W); the result has the same shape and type, and depends on `generator` alone.

    severity: 1 to 5. The constants are those of the nearest size we have: 8 pixels (ours, for digits).

    >>> grey = torch.full((1, 1, 8, 8), 100, dtype=torch.uint8)
    >>> corrupt(grey, "brightness", severity=1).unique().tolist()  # 100 + 0.1 * 255, cut to an integer
    [125]
    """
    check_name("corruption", name, CORRUPTIONS)
    if severity not in (1, 2, 3, 4, 5):
        raise ValueError(f"severity must be 1, 2, 3, 4 or 5, got {severity!r}")
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(f"images must be uint8 (N, C, H, W), got {images.dtype} {tuple(images.shape)}")
    corrupted = CORRUPTIONS[name](to_float(images), CONSTANTS[name][severity - 1], generator)
    return (corrupted.clamp(0, 1) * 255).to(torch.uint8)
