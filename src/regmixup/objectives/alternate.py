"""Alternate: at every step a coin decides which of two objectives is used."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from regmixup.config import check_number
from regmixup.mixing import Draw, sample_coins
from regmixup.objectives._base import Objective
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
    """One objective."""
    second: Objective = field(kw_only=False)
    """The other objective."""
    probability: float = 0.5
    """Probability of the first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("first", "second"):
            value = getattr(self, name)
            if not isinstance(value, Objective) or isinstance(value, Alternate):
                raise ValueError(f"{name} must be an objective other than Alternate, got {value!r}")
        check_number("probability", self.probability, least=0, most=1)

    @property
    def per_batch(self) -> bool:
        return True

    @property
    def differentiates_twice(self) -> bool:
        return self.first.differentiates_twice or self.second.differentiates_twice

    def draw(
        self, batch_size: int, image_size: int | tuple[int, ...], generator: torch.Generator | None = None
    ) -> Draw:
        branch = self._branch(generator)
        return replace((self.first, self.second)[branch].draw(batch_size, image_size, generator), branch=branch)

    def draw_part(
        self,
        batch_size: int,
        image_size: int | tuple[int, ...],
        *,
        shared: torch.Generator,
        own: torch.Generator,
    ) -> Draw:
        branch = self._branch(shared)
        chosen = (self.first, self.second)[branch]
        return replace(chosen.draw_part(batch_size, image_size, shared=shared, own=own), branch=branch)

    def _branch(self, generator: torch.Generator | None) -> int:
        return 0 if bool(sample_coins(self.probability, (), generator)) else 1

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if draw.branch not in (0, 1):
            raise ValueError(f"draw must name a branch, 0 or 1, got {draw}")
        return (self.first, self.second)[draw.branch].loss(model, x, y, draw)
