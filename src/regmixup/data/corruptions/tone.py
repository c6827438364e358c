"""Brightness, contrast and saturation. Images are uint8 (N, C, H, W); one channel is grey."""

from __future__ import annotations

import torch
from torch import Tensor

from regmixup.data.corruptions.pixels import SLACK, truncate
from regmixup.mixing import to_float


def brightness(images: Tensor, shift: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Raise the HSV value, the largest channel, by `shift` and scale the others with it; greys just shift."""
    x = to_float(images)
    value = x.amax(dim=1, keepdim=True)
    raised = (value + shift).clamp(0, 1)
    share = torch.where(value > 0, x / value.clamp_min(1e-12), torch.ones_like(x))
    return truncate(raised * share, slack=SLACK)


def contrast(images: Tensor, factor: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Shrink each channel towards its mean over the image."""
    x = to_float(images)
    mean = x.mean(dim=(2, 3), keepdim=True)
    return truncate(mean + factor * (x - mean))


def saturate(images: Tensor, scale: float, shift: float, *, generator: torch.Generator | None = None) -> Tensor:
    """Change the HSV saturation s = (max - min) / max to scale s + shift, cut to [0, 1]; hue and value stay.

    A channel v is max (1 - s d) with d = (max - v) / (max - min), and d is a matter of hue alone. Grey pixels have the
    hue of red, as is usual, so a shift reddens them. One-channel images have no colour and do not change.
    """
    if images.shape[1] == 1:
        return images.clone()
    x = to_float(images)
    value = x.amax(dim=1, keepdim=True)
    spread = value - x.amin(dim=1, keepdim=True)
    red_hue = torch.tensor([0.0, 1.0, 1.0], device=x.device).view(1, 3, 1, 1)
    hue = torch.where(spread > 0, (value - x) / spread.clamp_min(1e-12), red_hue)
    saturation = (spread / value.clamp_min(1e-12) * scale + shift).clamp(0, 1)
    return truncate(value * (1 - saturation * hue), slack=SLACK)
