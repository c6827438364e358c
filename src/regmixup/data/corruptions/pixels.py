"""Random numbers from a generator on any device, and real-valued images back to pixels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

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
