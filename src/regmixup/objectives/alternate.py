"""Alternate: at every step a coin decides which of two objectives is used."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from regmixup.config import Probability, introduced
from regmixup.losses import LossLike
from regmixup.mixing import Draw, ImageSize, sample_uniform
from regmixup.objectives._base import Objective, with_loss
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class Alternate(Objective):
    """`first` with the given probability, else `second`, one coin per step (appendix on other vicinal distributions).

    The paper's three combinations:
        Mixup + CutMix          Alternate(Mixup(), CutMix())
        RegMixup + CutMix       Alternate(RegMixup(), CutMix())
        RegMixup + RegCutMix    Alternate(RegMixup(), RegCutMix())

    The branch is a plain integer in the draw, so a compiled step has one graph per branch and no break.
    """

    first: Objective = field(kw_only=False)
    """The objective of the steps whose coin falls on heads."""
    second: Objective = field(kw_only=False)
    """The objective of the other steps."""
    probability: Probability = 0.5
    """Probability of `first`, in every step."""
    loss: LossLike | None = introduced(None)
    """Another loss of soft targets for the objectives whose own `loss` is None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("first", "second"):
            side = getattr(self, name)
            if not isinstance(side, Objective) or isinstance(side, Alternate) or side.head:
                raise ValueError(f"{name} must be an objective other than Alternate, DUQ and Rotation, got {side!r}")
        _ = self.sides  # made now: the lock of a cached property would break a compiled graph on Python 3.11

    @property
    def per_batch(self) -> bool:
        return True

    @cached_property
    def sides(self) -> tuple[Objective, Objective]:
        """Both objectives, with `loss` where they have none of their own."""
        return with_loss(self.first, self.loss, "first"), with_loss(self.second, self.loss, "second")

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        return self.draw_part(batch_size, image_size, shared=generator, own=generator)

    def draw_part(
        self, batch_size: int, image_size: ImageSize, *, shared: torch.Generator | None, own: torch.Generator | None
    ) -> Draw:
        branch = 0 if float(sample_uniform((), shared)) < self.probability else 1
        return replace(self.sides[branch].draw_part(batch_size, image_size, shared=shared, own=own), branch=branch)

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if draw.branch not in (0, 1):
            raise ValueError(f"draw must name a branch, 0 or 1, got {draw}")
        return self.sides[draw.branch].compute(model, x, y, draw)
