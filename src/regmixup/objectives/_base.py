"""What every objective is: a frozen dataclass of hyper-parameters that turns a batch into a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regmixup.config import check_choices
from regmixup.mixing import Draw, to_float
from regmixup.types import LossOutput, is_whole


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """Base of all objectives. A subclass declares its fields and implements `loss`, and `draw` if it is random.

    Calling one is the algorithm; with `draw=` given it is a deterministic, pure tensor function. `generator=None`
    means torch's global generator, so `torch.manual_seed` suffices for a reproducible loop.
    """

    head: ClassVar[str] = ""
    """The only head, by name, whose logits the loss understands; "" for a loss of any logits."""

    def __post_init__(self) -> None:
        check_choices(self)

    @property
    def per_batch(self) -> bool:
        """Whether a draw has numbers for the batch as a whole, which its parts then share: see `draw_part`."""
        return False

    @property
    def differentiates_twice(self) -> bool:
        """Whether the loss contains a gradient, so that training differentiates twice."""
        return False

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
            draw = self.draw(len(x), tuple(x.shape[1:]), generator)
        if not isinstance(draw, Draw):
            raise ValueError(f"draw must be what objective.draw(...) returns, got {draw!r}")
        return self.loss(model, to_float(x), y if y.ndim == 2 else y.long(), draw.to(x.device))

    def draw(
        self, batch_size: int, image_size: int | tuple[int, ...], generator: torch.Generator | None = None
    ) -> Draw:
        """All the randomness of one step; nothing for an objective that needs none.

        image_size: a side, (height, width) or (channels, height, width); noise per pixel needs the last.
        """
        return Draw()

    def draw_part(
        self,
        batch_size: int,
        image_size: int | tuple[int, ...],
        *,
        shared: torch.Generator,
        own: torch.Generator,
    ) -> Draw:
        """Draw for a part of a batch, of `batch_size` images.

        shared: a stream that is the same for all parts, for an objective that is `per_batch`. own: the part's.
        """
        return self.draw(batch_size, image_size, shared if self.per_batch else own)

    @abstractmethod
    def loss(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        """The algorithm, given float images and the draw."""

    def drawn(self, draw: Draw, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor of the draw, refused if it was made for another batch or other fields."""
        value: Tensor | None = getattr(draw, name, None)
        if value is None or value.shape != shape:
            got = None if value is None else f"shape {tuple(value.shape)}"
            raise ValueError(f"draw.{name} must have shape {shape} for {self} and this batch, got {got}")
        return value


def check_batch(x: Tensor, y: Tensor) -> None:
    """Shapes and types always; values only where looking is free (eager mode, on the CPU)."""
    for name, value in (("x", x), ("y", y)):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a torch tensor, got {type(value).__name__}")
    if x.ndim != 4 or not (x.is_floating_point() or x.dtype == torch.uint8):
        raise ValueError(f"x must be uint8 or floating-point images (N, C, H, W), got {x.dtype} {tuple(x.shape)}")
    if len(x) == 0:
        raise ValueError(f"x must hold at least one image, got shape {tuple(x.shape)}")
    if not ((y.ndim == 1 and is_whole(y)) or (y.ndim == 2 and y.is_floating_point())):
        raise ValueError(f"y must be class indices (N,) or class probabilities (N, K), got {y.dtype} {tuple(y.shape)}")
    if len(y) != len(x):
        raise ValueError(f"y must hold one label per image, got {len(y)} labels for {len(x)} images")
    if can_look(x) and x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError("x must be finite, got images with NaN or infinite pixels")


def check_labels(y: Tensor, num_classes: int) -> None:
    """Class indices must lie in [0, num_classes); probabilities need num_classes columns, rows that sum to 1."""
    if y.ndim == 2:
        if y.shape[1] != num_classes:
            raise ValueError(f"y must have one probability per class, {num_classes}, got shape {tuple(y.shape)}")
        if can_look(y) and not (bool((y >= 0).all()) and bool(((y.double().sum(dim=1) - 1).abs() < 0.02).all())):
            raise ValueError("y must hold probabilities: no value below 0 and rows that sum to 1")
    elif can_look(y):
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= num_classes:
            raise ValueError(f"y must hold labels in [0, {num_classes}), got values from {low} to {high}")


def can_look(values: Tensor) -> bool:
    """Whether reading values costs nothing: not while compiling, and not where it would wait for a device."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()
