"""What every objective is: a frozen dataclass of hyper-parameters that turns a batch into a loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regmixup.config import check_choices
from regmixup.mixing import Draw, to_float
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Base of all objectives. A subclass declares its fields and implements `loss`, and `draw` if it is random.

    Calling one is the algorithm; with `draw=` given it is a deterministic, pure tensor function. `generator=None`
    means torch's global generator, so `torch.manual_seed` suffices for a reproducible loop.
    """

    def __post_init__(self) -> None:
        check_choices(self)

    def __call__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        generator: torch.Generator | None = None,
        draw: Draw | None = None,
    ) -> LossOutput:
        """The loss of one batch.

        model: any module from images (N, C, H, W) to logits (N, K).
        x: (N, C, H, W) uint8 in 0..255 or floating point. y: (N,) class indices or (N, K) probabilities.
        """
        check_batch(x, y)
        if draw is None:
            draw = self.draw(len(x), (x.shape[-2], x.shape[-1]), generator)
        return self.loss(model, to_float(x), y, draw.to(x.device))

    def draw(
        self, batch_size: int, image_size: int | tuple[int, int], generator: torch.Generator | None = None
    ) -> Draw:
        """All the randomness of one step; nothing for an objective that needs none."""
        return Draw()

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        """The algorithm, given float images and the draw."""
        raise NotImplementedError


def check_batch(x: Tensor, y: Tensor) -> None:
    """Shapes and types always; values only where looking is free (eager mode, on the CPU)."""
    if x.ndim != 4 or not (x.is_floating_point() or x.dtype == torch.uint8):
        raise ValueError(f"x must be uint8 or floating-point images (N, C, H, W), got {x.dtype} {tuple(x.shape)}")
    if len(x) == 0:
        raise ValueError(f"x must hold at least one image, got shape {tuple(x.shape)}")
    if len(y) != len(x):
        raise ValueError(f"y must hold one label per image, got {len(y)} labels for {len(x)} images")
    if not ((y.ndim == 1 and not y.is_floating_point()) or (y.ndim == 2 and y.is_floating_point())):
        raise ValueError(f"y must be class indices (N,) or class probabilities (N, K), got {y.dtype} {tuple(y.shape)}")
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError("x must be finite, got images with NaN or infinite pixels")


def check_labels(y: Tensor, num_classes: int) -> None:
    """Class indices must lie in [0, num_classes), probabilities must have num_classes columns. Eager CPU only."""
    if y.ndim == 2:
        if y.shape[1] != num_classes:
            raise ValueError(f"y must have one probability per class, {num_classes}, got shape {tuple(y.shape)}")
        return
    if y.device.type != "cpu" or torch.compiler.is_compiling():
        return
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= num_classes:
        raise ValueError(f"labels must lie in [0, {num_classes}), got values from {low} to {high}")
