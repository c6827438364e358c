"""The base of all objectives: a frozen dataclass of hyper-parameters that turns a batch into a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regmixup.config import check_choices
from regmixup.mixing import Draw, ImageSize, can_look, check_generator, to_float
from regmixup.networks.outputs import warn_of_softmax
from regmixup.types import LossOutput, is_whole

_REPORTED = ("loss", "train_accuracy", "epoch", "seconds")


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """Base of all objectives. A subclass declares its fields and implements `compute`, and `draw` if it is random.

    Calling one is the algorithm; with `draw=` given it is a deterministic, pure tensor function. `generator=None`
    means torch's global generator, so `torch.manual_seed` suffices for a reproducible loop.
    """

    head: ClassVar[str] = ""
    """The only head, by name, whose logits the loss understands; "" for a loss of any logits."""

    def __post_init__(self) -> None:
        check_choices(self)
        loss = getattr(self, "loss", None)
        if loss is not None and (isinstance(loss, type) or not callable(loss)):
            raise ValueError(
                f"loss must be None or a callable from logits and soft targets to (N,), such as Focal(), got {loss!r}"
            )

    @property
    def per_batch(self) -> bool:
        """True if a draw has numbers for the batch as a whole, which its parts then share: see `draw_part`."""
        return False

    @property
    def needs_images(self) -> bool:
        """True if x must be images (N, C, H, W), because the objective works on their pixels."""
        return False

    @property
    def multi_label(self) -> bool:
        """True if the loss takes targets (N, K) whose rows need not sum to 1."""
        return bool(getattr(getattr(self, "loss", None), "multi_label", False))

    @property
    def differentiates_twice(self) -> bool:
        """True if the loss contains a gradient, so that training differentiates twice."""
        return False

    def __call__(
        self,
        model: nn.Module | Callable[[Tensor], Any],
        x: Tensor,
        y: Tensor,
        generator: torch.Generator | None = None,
        draw: Draw | None = None,
    ) -> LossOutput:
        """Return the loss of one batch.

        model: any module or function from x to logits (N, K), or to an output that holds them, see `logits_of`.
        x: images (N, C, H, W), uint8 in 0..255 or floating point, or other floating-point inputs (N, ...), such as
        features (N, D). y: (N,) class indices, (N, K) probabilities, or what a multi-label `loss` takes. Indices may
        be (N, 1) and one-hot labels integers.
        """
        check_batch(x, y, images=self.needs_images, objective=type(self).__name__)
        y = as_labels(y, multi_label=self.multi_label)
        check_generator(generator)
        if draw is None:
            draw = self.draw(len(x), tuple(x.shape[1:]), generator)
        out = self.compute(model, to_float(x), y, draw.to(x.device))  # type: ignore[arg-type]  # a function works, too
        _check_output(out, type(self).__name__)
        if getattr(self, "loss", None) is None:  # a loss of the user's own may take probabilities
            warn_of_softmax(model, out.logits)
        return out

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        """Draw all the randomness of one step; nothing for an objective that needs none.

        image_size: a side, (height, width) or (channels, height, width); noise per pixel needs the last. For inputs
        that are not images, their shape x.shape[1:].
        """
        return Draw()

    def draw_part(
        self, batch_size: int, image_size: ImageSize, *, shared: torch.Generator, own: torch.Generator
    ) -> Draw:
        """Draw for a part of a batch, of `batch_size` images.

        shared: a stream that is the same for all parts, for an objective that is `per_batch`. own: the part's.
        """
        return self.draw(batch_size, image_size, shared if self.per_batch else own)

    @abstractmethod
    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        """Return the loss of a checked batch. x: floating-point images. draw: all the randomness, on x's device."""


def check_batch(x: Tensor, y: Tensor, *, images: bool, objective: str) -> None:
    """Check shapes and types always, and values only where reading them is free (eager mode, on the CPU).

    images: whether x must be images (N, C, H, W). Pixels in uint8 must be in any case.
    """
    for name, tensor in (("x", x), ("y", y)):
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a torch tensor, got {type(tensor).__name__}")
    if x.ndim < 2 or not (x.is_floating_point() or (x.dtype == torch.uint8 and x.ndim == 4)):
        raise ValueError(
            "x must be uint8 or floating-point images (N, C, H, W), or other floating-point inputs (N, ...), such as "
            f"features (N, D), got {x.dtype} {tuple(x.shape)}"
        )
    if images and x.ndim != 4:
        raise ValueError(f"x must be images (N, C, H, W) for {objective}, got {x.dtype} {tuple(x.shape)}")
    if len(x) == 0 or len(y) != len(x):
        raise ValueError(f"x and y must hold one label per image, got {len(y)} labels for {len(x)} images")
    if can_look(x) and x.is_floating_point() and not torch.isfinite(x).all():
        raise ValueError("x must be finite, got images with NaN or infinite pixels")


def as_labels(y: Tensor, *, multi_label: bool = False) -> Tensor:
    """Return labels as class indices (N,) int64 or as floating-point targets (N, K), by their shape and type alone.

    Whole numbers (N, 1) are class indices, except for a multi-label loss of one class; other whole numbers (N, K), and
    booleans, are one-hot or multi-label targets.
    """
    if y.ndim == 2 and y.shape[1] == 1 and not multi_label:
        y = y.squeeze(1)
    if y.ndim == 1 and is_whole(y):
        return y.long()
    if y.ndim != 2:
        raise ValueError(
            "y must be class indices (N,) of an integer type or class probabilities (N, K), or (N, 1) beside "
            f"loss=rm.losses.BinaryCrossEntropy() for one yes-or-no question, got {y.dtype} {tuple(y.shape)}"
        )
    return y if y.is_floating_point() else y.to(torch.get_default_dtype())


def _check_output(out: LossOutput, objective: str) -> None:
    """Say what is wrong with what an objective of a user's own computed."""
    contract = f"{objective}.compute must return a LossOutput"
    if not isinstance(out, LossOutput):
        raise ValueError(f"{contract}, got {type(out).__name__}")
    for name, term in {"loss": out.loss, **out.parts}.items():
        if not isinstance(term, Tensor) or term.ndim:
            raise ValueError(f"{contract} whose loss and parts are tensors of shape (), got {term!r} for {name}")
    if reserved := out.parts.keys() & set(_REPORTED):
        raise ValueError(f"{contract} whose parts have names other than {', '.join(_REPORTED)}, got {min(reserved)!r}")
