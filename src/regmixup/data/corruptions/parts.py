"""The parts of corruptions: random numbers, pixels, filters as matrices.

Random numbers come from a generator on any device. A separable filter, or a resize, of an (H, W) image X is R X C^T,
with one small matrix per axis whose rows hold the weights; the matrices also hold the border rule. On images of this
size two matrix products are the fastest way to filter a batch on CPU and GPU, whatever the width of the kernel.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

Border = Literal["edge", "symmetric", "reflect"]
"""As in `numpy.pad`: edge repeats a a|a b c|c c, symmetric b a|a b c|c b, reflect c b|a b c|b a."""
SLACK = 2.0**-10  # pixel levels, see `truncate`


def uniform(shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Draw U[0, 1) numbers, float32, on the generator's own device, and move them to `device`.

    So a CPU generator gives the same numbers for images on any device. Without one, `device`'s global one is used.
    """
    source = generator.device if generator is not None else device
    return torch.rand(shape, generator=generator, device=source).to(device)


def normal(shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Draw N(0, 1) numbers on `device`, float32, from `uniform` by the Box-Muller map.

    The uniforms are paired 8 apart, as `torch.randn` does on the CPU, so that both give the same numbers up to
    rounding; here the map runs on all threads and on the images' device.
    """
    count = math.prod(shape)
    pair = uniform((-(-count // 16), 2, 8), device, generator)
    radius = pair[:, 0].neg_().add_(1).log_().mul_(-2).sqrt_()
    angle = pair[:, 1] * (2 * math.pi)
    torch.mul(angle.sin(), radius, out=pair[:, 1])
    radius.mul_(angle.cos_())
    return pair.flatten()[:count].view(shape)


def truncate(x: Tensor, *, slack: float = 0.0) -> Tensor:
    """Turn values in [0, 1] into uint8 pixels as in CIFAR-C: clip, times 255, cut the fraction. Overwrites x.

    slack: in pixel levels; `SLACK` where exact arithmetic often gives whole levels (a mean of equal pixels, a shift by
    51 levels) and a float32 rounding error just below must not cost one.

    >>> truncate(torch.tensor([-1.0, 0.5, 0.999, 2.0])).tolist()
    [0, 127, 254, 255]
    """
    levels = x.clamp_(0, 1).mul_(255)
    return (levels.add_(slack) if slack else levels).to(torch.uint8)


def gaussian(x: Tensor, sigma: float, *, cut: float = 4.0, border: Border = "edge") -> Tensor:
    """Convolve with a Gaussian cut at `cut` standard deviations. x: (N, C, H, W) float. sigma: above 0."""
    rows, columns = (torch.from_numpy(gaussian_matrix(side, sigma, cut, border)).to(x) for side in x.shape[-2:])
    return torch.einsum("ij,ncjk->ncik", rows, x @ columns.T).contiguous()  # einsum's permuted layout is slow to use


@lru_cache(maxsize=64)
def gaussian_matrix(size: int, sigma: float, cut: float, border: Border) -> np.ndarray:
    """Return the (size, size) matrix of a filter with weights ~ exp(-k^2 / (2 sigma^2)), |k| <= cut sigma."""
    radius = int(cut * sigma + 0.5)
    offset = np.arange(-radius, radius + 1)
    return filter_matrix(size, np.exp(-(offset**2) / (2 * sigma**2)), border)


def filter_matrix(size: int, weight: np.ndarray, border: Border) -> np.ndarray:
    """Return the (size, size) matrix of the filter of an odd number of weights, centred and scaled to add up to 1."""
    reach = len(weight) // 2
    matrix = np.zeros((size, size))
    target = np.arange(size)
    source = sliding_window_view(np.pad(target, reach, mode=border), len(weight))
    np.add.at(matrix, (target[:, None], source), weight / weight.sum())
    return matrix


def box_matrix(source: int, target: int) -> np.ndarray:
    """Return the (target, source) matrix of PIL's BOX: means of the source pixels whose centres a target pixel covers.

    A target pixel smaller than a source pixel counts as one source pixel wide.
    """
    scale = source / target
    centre = (np.arange(target)[:, None] + 0.5) * scale
    half = max(scale, 1.0) / 2
    distance = (np.arange(source) - centre + 0.5) * (1 / max(scale, 1.0))
    first, last = (centre - half + 0.5).astype(np.int64), (centre + half + 0.5).astype(np.int64)
    covered = (distance > -0.5) & (distance <= 0.5) & (np.arange(source) >= first) & (np.arange(source) < last)
    return covered / covered.sum(axis=1, keepdims=True)
