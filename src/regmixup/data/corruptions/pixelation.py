"""Pixelation: fewer, larger pixels."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from regmixup.data.corruptions.linear import box_matrix


def pixelate(images: Tensor, share: float, *, generator: torch.Generator | None = None) -> Tensor:
    """The sides shrunk to int(share * side) by means over boxes, and stretched back, as PIL's BOX does both.

    PIL works on one axis at a time, columns first, and rounds to whole levels after each. Stretching only repeats
    pixels, so it can be done before the other axis is shrunk. images: uint8 (N, C, H, W).
    """
    rows, columns = (torch.from_numpy(_there_and_back(side, share)).to(images.device) for side in images.shape[-2:])
    x = (images.float() @ columns.T).add_(0.5).floor_()
    return torch.einsum("ij,ncjk->ncik", rows, x).add_(0.5).to(torch.uint8)


@lru_cache(maxsize=64)
def _there_and_back(side: int, share: float) -> np.ndarray:
    small = max(1, int(side * share))
    return (box_matrix(small, side) @ box_matrix(side, small)).astype(np.float32)
