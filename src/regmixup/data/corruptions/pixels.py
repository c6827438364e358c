"""Noise, blur and tone: float images (N, C, H, W) in [0, 1] -> corrupted, before clipping."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def _draw(like: Tensor, generator: torch.Generator | None, sampler: str) -> Tensor:
    """Random numbers from a generator on any device, brought to the images' device."""
    device = generator.device if generator is not None else like.device
    return getattr(torch, sampler)(like.shape, generator=generator, device=device).to(like.device)


def gaussian_noise(x: Tensor, scale: float, generator: torch.Generator | None) -> Tensor:
    """x + N(0, scale^2)."""
    return x + scale * _draw(x, generator, "randn")


def impulse_noise(x: Tensor, amount: float, generator: torch.Generator | None) -> Tensor:
    """A fraction `amount` of the values becomes 0 or 1, half each (salt and pepper)."""
    u = _draw(x, generator, "rand")
    return torch.where(u < amount / 2, torch.zeros_like(x), torch.where(u < amount, torch.ones_like(x), x))


def gaussian_blur(x: Tensor, sigma: float, generator: torch.Generator | None) -> Tensor:
    """Convolution with a Gaussian cut at 4 sigma, edges repeated."""
    radius = max(1, math.ceil(4 * sigma))
    offsets = torch.arange(-radius, radius + 1, dtype=x.dtype, device=x.device)
    kernel = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).expand(x.shape[1], 1, -1)
    x = F.conv2d(F.pad(x, (radius, radius, 0, 0), mode="replicate"), kernel.unsqueeze(2), groups=x.shape[1])
    return F.conv2d(F.pad(x, (0, 0, radius, radius), mode="replicate"), kernel.unsqueeze(3), groups=x.shape[1])


def brightness(x: Tensor, shift: float, generator: torch.Generator | None) -> Tensor:
    """Raises the HSV value, the largest channel, by `shift` and scales the others with it; grey images just shift."""
    value = x.amax(dim=1, keepdim=True)
    raised = (value + shift).clamp(0, 1)
    return torch.where(value > 0, x * (raised / value.clamp_min(1e-12)), raised)


def contrast(x: Tensor, factor: float, generator: torch.Generator | None) -> Tensor:
    """Shrinks each channel towards its mean over the image."""
    mean = x.mean(dim=(2, 3), keepdim=True)
    return mean + factor * (x - mean)


PIXELS = {f.__name__: f for f in (gaussian_noise, impulse_noise, gaussian_blur, brightness, contrast)}
