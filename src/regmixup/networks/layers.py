"""Layers our backbones share: convolutions without bias, the global mean, and dropout that is cheap when compiled."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

_BITS = 24
_GOLDEN, _FIRST, _SECOND = (constant - 2**32 for constant in (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35))  # as int32


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution with torch's own initialisation, padded so that stride 1 keeps the image's size."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def he_conv(inputs: int, outputs: int, kernel: int, stride: int = 1, *, fan: Literal["in", "out"] = "out") -> nn.Conv2d:
    """Return a convolution with weights from N(0, 2 / (kernel^2 * channels)) (He et al., 2015).

    fan: which channels to count, those of the output or of the input.
    """
    layer = conv(inputs, outputs, kernel, stride)
    nn.init.kaiming_normal_(layer.weight, mode="fan_in" if fan == "in" else "fan_out", nonlinearity="relu")
    return layer


class GlobalAverage(nn.Module):
    """Mean over all positions: (N, C, H, W) -> (N, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


class Dropout(nn.Dropout):
    """As `nn.Dropout`, with a cheaper random number per element in a compiled step on CUDA.

    torch.compile computes a Philox number for every element, which costs more than the memory traffic of the layers
    around it. Here element i of a layer is dropped if the top 24 bits of h((i xor s) g) are below p 2^24, with s drawn
    per layer and step from torch's generator, g = 2^32 / golden ratio and h the final mixing of MurmurHash3, modulo
    2^32. (Without g, elements a few rows apart are dropped together slightly too often.) The mask is a function of i
    and s, so the backward pass recomputes it instead of reading it.

    >>> layer = Dropout(0.5)
    >>> bool((layer.eval()(torch.ones(4)) == 1).all())
    True
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.p > 0 and x.is_cuda and torch.compiler.is_compiling():
            seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=x.device)
            return torch.where(keeps(x, seed, self.p), x * (1 / (1 - self.p)), 0)
        return super().forward(x)


def keeps(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """Return which elements of x are kept, each with probability 1 - p, for a seed (1,) int32.

    >>> stays = keeps(torch.zeros(100, 100), torch.tensor([7], dtype=torch.int32), 0.1)
    >>> round(float(stays.float().mean()), 3)
    0.9
    """
    index = torch.arange(x.numel(), dtype=torch.int32, device=x.device)
    if x.ndim == 4:  # numbered as channels-last memory is, so that neighbours in memory are neighbours in number
        n, c, height, width = x.shape
        index = index.view(n, height, width, c).permute(0, 3, 1, 2)
    else:
        index = index.view(x.shape)
    return (_mixed((index ^ seed) * _GOLDEN) >> (32 - _BITS) & (2**_BITS - 1)) >= round(p * 2**_BITS)


def _mixed(h: Tensor) -> Tensor:
    """Apply MurmurHash3's final mixing to int32, whose products wrap; the masks make arithmetic shifts logical."""
    h = (h ^ (h >> 16 & 0xFFFF)) * _FIRST
    h = (h ^ (h >> 13 & 0x7FFFF)) * _SECOND
    return h ^ (h >> 16 & 0xFFFF)
