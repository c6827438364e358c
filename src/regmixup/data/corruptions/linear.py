"""Filters and resizings as matrices.

A separable filter, or a resize, of an (H, W) image X is R X C^T, with one small matrix per axis whose rows hold the
weights; every border rule is baked into the matrices. On images of this size two matrix products are the fastest way to
filter a batch on CPU and GPU, whatever the width of the kernel.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Border = Literal["nearest", "reflect", "mirror"]


def apply(x: Tensor, rows: np.ndarray, columns: np.ndarray) -> Tensor:
    """Return R X C^T of every image. x: (N, C, H, W) float; rows: (H', H); columns: (W', W) -> (N, C, H', W')."""
    left, right = (torch.from_numpy(matrix).to(x.device, x.dtype) for matrix in (rows, columns.T))
    return torch.einsum("ij,ncjk->ncik", left, x @ right).contiguous()  # einsum returns a permuted layout, slow to use


def gaussian(x: Tensor, sigma: float, *, cut: float = 4.0, border: Border = "nearest") -> Tensor:
    """Convolve with a Gaussian cut at `cut` standard deviations. x: (N, C, H, W) float. sigma 0 is the identity."""
    if _radius(sigma, cut) == 0:
        return x
    height, width = x.shape[-2:]
    return apply(x, gaussian_matrix(height, sigma, cut, border), gaussian_matrix(width, sigma, cut, border))


def _radius(sigma: float, cut: float) -> int:
    return int(cut * sigma + 0.5)


@lru_cache(maxsize=64)
def gaussian_matrix(size: int, sigma: float, cut: float, border: Border) -> np.ndarray:
    """Return the (size, size) matrix of a filter with weights ~ exp(-k^2 / (2 sigma^2)), |k| <= cut sigma."""
    offset = np.arange(-_radius(sigma, cut), _radius(sigma, cut) + 1)
    return filter_matrix(size, np.exp(-(offset**2) / (2 * sigma**2)), border)


def filter_matrix(size: int, weight: np.ndarray, border: Border) -> np.ndarray:
    """Return the (size, size) matrix of the filter of an odd number of weights, centred and scaled to add up to 1."""
    reach = len(weight) // 2
    matrix = np.zeros((size, size))
    target = np.arange(size)[:, None]
    source = inside(target + np.arange(-reach, reach + 1), size, border)
    np.add.at(matrix, (target, source), weight / weight.sum())
    return matrix


def inside(index: np.ndarray, size: int, border: Border) -> np.ndarray:
    """Map pixels outside to those inside: nearest a a|a b c|c c, reflect b a|a b c|c b, mirror c b|a b c|b a."""
    if border == "nearest" or size == 1:
        return index.clip(0, size - 1)
    period = 2 * size if border == "reflect" else 2 * size - 2
    index = index % period
    return np.minimum(index, period - 1 - index if border == "reflect" else period - index)


@lru_cache(maxsize=64)
def box_matrix(source: int, target: int) -> np.ndarray:
    """Return the (target, source) matrix of PIL's BOX: means of the source pixels whose centres a target pixel covers.

    A target pixel smaller than a source pixel counts as one source pixel wide.
    """
    scale = source / target
    centre = (np.arange(target)[:, None] + 0.5) * scale
    distance = (np.arange(source) - centre + 0.5) * (1 / max(scale, 1.0))
    first, last = ((centre + side * max(scale, 1.0) / 2 + 0.5).astype(np.int64) for side in (-1, 1))
    covered = (distance > -0.5) & (distance <= 0.5) & (np.arange(source) >= first) & (np.arange(source) < last)
    return covered / covered.sum(axis=1, keepdims=True)
