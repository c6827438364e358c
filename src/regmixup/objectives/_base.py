"""The base of all objectives: a frozen dataclass of hyper-parameters that turns a batch into a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar
from weakref import WeakSet

import torch
from torch import Tensor, nn

from regmixup.config import check_fields
from regmixup.losses import LOSSES, LossLike
from regmixup.mixing import Draw, ImageSize, check_boxes, to_float
from regmixup.names import warn_user
from regmixup.types import RESERVED, LossOutput, is_whole, look_like_probabilities

_LOOKED_AT: WeakSet[nn.Module] = WeakSet()


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """Base of all objectives. A subclass declares its fields and implements `compute`, and `draw` if it is random.

    Calling one is the algorithm; with `draw=` given it is a deterministic, pure tensor function. `generator=None`
    means torch's global generator, so `torch.manual_seed` suffices for a reproducible loop.
    """

    head: ClassVar[str] = ""
    """The only head, by name, whose logits the loss understands; "" for a loss of any logits."""

    def __post_init__(self) -> None:
        check_fields(self)
        loss = getattr(self, "loss", None)
        if not (loss is None or callable(loss)) or isinstance(loss, type):
            contract = "None or a callable (logits, soft targets) -> (N,), such as rm.losses.Focal()"
            raise ValueError(f"loss must be {contract}, got {loss!r}")

    @property
    def per_batch(self) -> bool:
        """True if a draw has numbers for the batch as a whole, which its parts then share: see `draw_part`."""
        return getattr(self, "lam", None) == "batch"

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
        features (N, D). y: (N,) class indices or (N, K) probabilities. Indices may be (N, 1) and one-hot labels
        integers. A `loss` of K yes-or-no questions takes any (N, K) numbers.
        """
        for name, values in {"x": x, "y": y}.items():
            if not isinstance(values, Tensor):
                raise ValueError(f"{name} must be a torch.Tensor, got {type(values).__name__}")
        if not (x.is_floating_point() or x.dtype == torch.uint8):
            raise ValueError(f"x must be uint8 or floating-point images or other inputs, got {x.dtype}")
        if len(x) == 0 or len(y) != len(x):
            raise ValueError(f"x and y must hold one label per image, got {len(y)} labels for {len(x)} images")
        if draw is None:
            draw = self.draw(len(x), tuple(x.shape[1:]), generator)
        else:
            check_boxes(draw, x)
        out = self.compute(model, to_float(x), as_labels(y), draw.to(x.device))  # type: ignore[arg-type]  # a function works, too
        if not _is_sound(out, len(x)):
            raise ValueError(
                f"{type(self).__name__}.compute must return a LossOutput with a scalar loss, logits ({len(x)}, K) or "
                f"None, and parts that are scalar tensors with names other than {', '.join(RESERVED)}, got {out!r}"
            )
        self.warn_of_probabilities(model, out.logits)
        return out

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        """Draw all the randomness of one step; nothing for an objective that needs none.

        image_size: a side, (height, width) or (channels, height, width); noise per pixel needs the last. For inputs
        that are not images, their shape x.shape[1:].
        """
        return Draw()

    def draw_part(
        self, batch_size: int, image_size: ImageSize, *, shared: torch.Generator | None, own: torch.Generator | None
    ) -> Draw:
        """Draw for a part of a batch, of `batch_size` images.

        shared: a stream that is the same for all parts, for an objective that is `per_batch`. own: the part's.
        """
        return self.draw(batch_size, image_size, shared if self.per_batch else own)

    @abstractmethod
    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        """Return the loss of a checked batch. x: floating-point images. draw: all the randomness, on x's device."""

    def warn_of_probabilities(self, model: object, logits: Tensor | None) -> None:
        """Warn at a model's first batch if it gives probabilities; not where a loss of the user's own may take them.

        An objective without logits calls it in `compute`. Later batches are not looked at: that waits for the device.
        """
        if torch.compiler.is_compiling():  # torch 2.11 cannot compile the question whose loss it is
            return
        loss = getattr(self, "loss", None)
        takes_logits = loss is None or type(loss) in LOSSES.values()
        if not takes_logits or logits is None or not isinstance(model, nn.Module) or model in _LOOKED_AT:
            return
        try:
            if logits.is_cuda and torch.cuda.is_current_stream_capturing():
                return
            ends_in_softmax = logits.shape[1] > 1 and look_like_probabilities(logits.detach())
        except RuntimeError:  # there is nothing to look at: a meta or fake tensor, or one under vmap
            return
        _LOOKED_AT.add(model)
        if ends_in_softmax:
            warn_user(
                "the model must give logits, got numbers >= 0 that sum to 1: "
                "leave out its softmax, the loss has its own"
            )


def _is_sound(out: Any, count: int) -> bool:
    """Return whether `compute` has returned what training can log. count: images of the batch."""
    if not isinstance(out, LossOutput) or out.parts.keys() & set(RESERVED):
        return False
    scalars = all(isinstance(term, Tensor) and term.ndim == 0 for term in (out.loss, *out.parts.values()))
    return scalars and (out.logits is None or (out.logits.ndim == 2 and out.logits.shape[0] == count))


def has_loss(objective: Objective) -> bool:
    """Return whether an objective has a field `loss`, so that its loss of soft targets can be another one."""
    return "loss" in {field.name for field in fields(objective)}


def with_loss(objective: Objective, loss: LossLike | None, name: str) -> Objective:
    """Return an objective with a loss, if there is one, where its own is None. name: of the field that holds it."""
    if loss is None:
        return objective
    if not has_loss(objective):
        raise ValueError(f"loss must be None unless {name} has a field `loss`, got {loss!r} with {objective!r}")
    return replace(objective, loss=loss) if objective.loss is None else objective  # type: ignore[attr-defined, call-arg]


def as_labels(y: Tensor) -> Tensor:
    """Return labels as class indices (N,) int64 or as floating-point targets (N, K), by their shape and type alone.

    Whole numbers (N, 1) are class indices; other whole numbers (N, K), and booleans, are one-hot or multi-label
    targets.
    """
    if y.ndim == 2 and y.shape[1] == 1 and is_whole(y):
        y = y.squeeze(1)
    if y.ndim == 1 and is_whole(y):
        return y.long()
    if y.ndim != 2:
        raise ValueError(
            "y must be class indices (N,) of an integer type or class probabilities (N, K), "
            f"got {y.dtype} {tuple(y.shape)}"
        )
    return y if y.is_floating_point() else y.to(torch.get_default_dtype())
