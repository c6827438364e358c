"""Rotation: any objective, and the task of telling by how much an image was rotated (Hendrycks et al., 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regmixup.config import NotNegative, introduced
from regmixup.losses import LossLike, cross_entropy
from regmixup.mixing import Draw, ImageSize, check_images, full_precision
from regmixup.objectives._base import Objective, with_loss
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class Rotation(Objective):
    """L(f, x, y) + weight CE(r(x_k), k): L the objective's loss, x_k the image rotated by k 90 degrees, k = 0 ... 3.

    r is a linear layer beside the classes': a network with head="rotation" has it. The three rotated versions join the
    objective's first forward pass, as in OpenOOD's trainer, whose loss this is for ERM. x is the first N images of that
    pass: the clean ones where the objective forwards them. Images must be square.
    """

    head: ClassVar[str] = "rotation"

    objective: Objective = field(kw_only=False)
    """The objective of the classes; any that works with a linear head."""
    weight: NotNegative = 1.0
    """>= 0: weight of predicting rotations, 1 in OpenOOD's code and 0.5 in Hendrycks et al.; 0 leaves it out."""
    loss: LossLike | None = introduced(None)
    """Another loss of soft targets for the objective if its own `loss` is None; rotations keep cross-entropy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.objective, Objective) or self.objective.head:
            raise ValueError(f"objective must be an objective for any head, such as RegMixup(), got {self.objective!r}")
        _ = self.class_objective  # made now: the lock of a cached property would break a compiled graph on Python 3.11

    @property
    def per_batch(self) -> bool:
        return self.objective.per_batch

    @cached_property
    def class_objective(self) -> Objective:
        """The objective of the classes, with `loss` where it has none of its own."""
        return with_loss(self.objective, self.loss, "objective")

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        return self.objective.draw(batch_size, image_size, generator)

    def draw_part(self, batch_size: int, image_size: ImageSize, **streams: Any) -> Draw:
        return self.objective.draw_part(batch_size, image_size, **streams)

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.weight == 0:
            return self.class_objective.compute(model, x, y, draw)
        check_images(x)
        if x.shape[2] != x.shape[3]:
            raise ValueError(f"x must be square images (N, C, H, H) to be rotated, got shape {tuple(x.shape)}")
        if not isinstance(getattr(getattr(model, "head", None), "rotation", None), nn.Module):
            raise ValueError(
                f'model must be built with head="rotation" to predict rotations, got {type(model).__name__}'
            )
        rotating = _RotatingModel(model, len(x))
        out = self.class_objective.compute(rotating, x, y, draw)  # type: ignore[arg-type]  # a function works, too
        assert rotating.loss is not None
        parts = {**out.parts, "rotation": rotating.loss.detach()}
        return LossOutput(loss=out.loss + self.weight * rotating.loss, logits=out.logits, parts=parts)


class _RotatingModel:
    """The model that the objective sees; its first pass also rotates `count` images: `loss` is CE(r(x_k), k)."""

    def __init__(self, model: Any, count: int) -> None:
        self.model, self.count = model, count
        self.loss: Tensor | None = None

    def modules(self) -> Iterator[nn.Module]:  # for passes that leave batch-norm statistics alone
        return self.model.modules()

    def __call__(self, images: Tensor) -> Any:
        if self.loss is not None:
            return self.model(images)
        upright = images[: self.count]
        # Copies into the memory order of the images, which rot90 does not keep.
        rotated = [torch.empty_like(upright).copy_(torch.rot90(upright, k, (2, 3))) for k in (1, 2, 3)]
        features = self.model.features(torch.cat([images, *rotated]))
        of_rotations = torch.cat([features[: len(upright)], features[len(images) :]])  # k = 0, then 1, 2, 3
        k = torch.arange(4, device=images.device).repeat_interleave(len(upright))
        self.loss = cross_entropy(full_precision(self.model.head.rotation(of_rotations)), k).mean()
        return self.model.head(features[: len(images)])
