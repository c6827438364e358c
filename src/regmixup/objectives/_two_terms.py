"""Eq. (3) of the paper: clean cross-entropy, regularised by a vicinal one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from regmixup.config import check_number
from regmixup.mixing import Draw, logits_of
from regmixup.objectives._vicinal import Vicinal
from regmixup.objectives.erm import clean_loss
from regmixup.types import LossOutput


class Terms(NamedTuple):
    """The two terms of Eq. (3), scalars, and the logits of the clean images where all of them were forwarded."""

    clean: Tensor
    sampled: Tensor
    logits: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class TwoTerms(Vicinal):
    """Cross-entropy on clean images plus eta times the vicinal one, Eq. (3); `RegMixup` explains the fields.

    A subclass says how the two terms are computed, or estimated (`terms`).
    """

    eta: float = 1.0
    """Weight of the mixed term, >= 0; 0 skips the draw and the mixed forward and is ERM exactly."""
    scale: Literal["mean", "sum"] = "mean"
    """mean: divide by 1 + eta, as the released code (eta = 1). sum: Eq. (3) to the letter. With a fixed learning rate
    and weight decay these are different recipes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eta", self.eta, least=0)

    @abstractmethod
    def terms(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> Terms:
        """Both terms before weighting; never asked where eta = 0."""

    def draw(
        self, batch_size: int, image_size: int | tuple[int, ...], generator: torch.Generator | None = None
    ) -> Draw:
        return Draw() if self.eta == 0 else super().draw(batch_size, image_size, generator)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.eta == 0:
            return clean_loss(logits_of(model, x), y)
        clean, sampled, logits = self.terms(model, x, y, draw)
        total = clean + self.eta * sampled
        if self.scale == "mean":
            total = total / (1 + self.eta)
        return LossOutput(loss=total, logits=logits, parts={"clean": clean.detach(), self.part: sampled.detach()})


@dataclass(frozen=True, kw_only=True)
class Regularised(TwoTerms):
    """Both terms on the whole batch: every image is forwarded clean, and sampled."""

    passes: Literal["joint", "separate"] = "joint"
    """joint: forward clean and mixed images together, so that batch norm sees both, as released. separate: one after
    the other."""

    def terms(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> Terms:
        clean_logits, sampled_logits = self.forward(model, x, self.sampled(x, draw))
        clean = clean_loss(clean_logits, y)
        return Terms(clean.loss, self.losses(sampled_logits, y, draw).mean(), clean_logits)

    def forward(self, model: nn.Module, clean: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of both, in one pass or two."""
        if self.passes == "separate":
            return logits_of(model, clean), logits_of(model, sampled)
        logits = logits_of(model, torch.cat([clean, sampled]))
        return logits[: len(clean)], logits[len(clean) :]
