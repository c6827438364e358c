"""What Mixup and CutMix share, and what turns either into a regulariser of plain training."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regmixup.config import check_count, check_number
from regmixup.mixing import Draw, LamMode, Pairing, height_and_width, mixed_cross_entropy, sample_beta, sample_partners
from regmixup.objectives._base import Objective, can_look, check_labels
from regmixup.objectives.erm import clean_loss
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class Vicinal(Objective):
    """Cross-entropy on mixed images alone. A subclass says how two images mix (`mix`) and may refine the draw.

    alpha: of lambda ~ Beta(alpha, alpha). lam: one lambda a "batch", or one a "sample".
    pairing: "derangement" (nobody mixes with itself) or "permutation" (as released).
    samples: m vicinal draws per image, Eq. (2); their losses are averaged.
    """

    alpha: float = 1.0
    lam: LamMode = "batch"
    pairing: Pairing = "derangement"
    samples: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("alpha", self.alpha, above=0)
        check_count("samples", self.samples)

    @abstractmethod
    def mix(self, x: Tensor, draw: Draw) -> Tensor:
        """The mixed images of one draw."""

    def draw(
        self, batch_size: int, image_size: int | tuple[int, ...], generator: torch.Generator | None = None
    ) -> Draw:
        sides = height_and_width(image_size)
        draws = [self.draw_one(batch_size, sides, generator) for _ in range(self.samples)]
        return draws[0] if self.samples == 1 else _stack(draws)

    def draw_one(self, batch_size: int, image_size: tuple[int, int], generator: torch.Generator | None) -> Draw:
        """One vicinal sample for every image of the batch."""
        shape = () if self.lam == "batch" else (batch_size,)
        lam = sample_beta(self.alpha, shape, generator)
        return Draw(lam=lam, partner=sample_partners(batch_size, self.pairing, generator))

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        draws = self.split(draw, len(x))
        mixed = self.mixed_loss(model(torch.cat([self.mix(x, d) for d in draws])), y, draws)
        return LossOutput(loss=mixed, logits=None, parts={"mixed": mixed.detach()})

    def mixed_loss(self, logits: Tensor, y: Tensor, draws: list[Draw]) -> Tensor:
        """Mean cross-entropy of the mixed images; logits of all the draws, one after the other."""
        check_labels(y, logits.shape[1])
        losses = [
            mixed_cross_entropy(part, y, d.lam, d.partner)  # type: ignore[arg-type]
            for part, d in zip(logits.chunk(len(draws)), draws, strict=True)
        ]
        return torch.cat(losses).mean()

    def split(self, draw: Draw, batch_size: int) -> list[Draw]:
        """One `Draw` per vicinal sample, checked against the batch and this objective's fields."""
        leading = () if self.samples == 1 else (self.samples,)
        lam_shape = leading if self.lam == "batch" else (*leading, batch_size)
        for name, shape in (("lam", lam_shape), ("partner", (*leading, batch_size))):
            value = getattr(draw, name)
            if value is None or value.shape != shape:
                raise ValueError(f"draw.{name} must have shape {shape} for {self} and this batch, got {value}")
        assert draw.partner is not None
        if can_look(draw.partner) and not 0 <= int(draw.partner.min()) <= int(draw.partner.max()) < batch_size:
            raise ValueError(f"draw.partner must hold indices in [0, {batch_size}), got {draw.partner}")
        if self.samples == 1:
            return [draw]
        assert draw.lam is not None
        box = draw.box if draw.box is not None else [None] * self.samples
        return [Draw(lam=draw.lam[i], partner=draw.partner[i], box=box[i]) for i in range(self.samples)]


def _stack(draws: list[Draw]) -> Draw:
    def column(name: str) -> Tensor | None:
        values = [getattr(d, name) for d in draws]
        return None if values[0] is None else torch.stack(values)

    return Draw(lam=column("lam"), partner=column("partner"), box=column("box"))


@dataclass(frozen=True, kw_only=True)
class Regularised(Vicinal):
    """Cross-entropy on clean images plus eta times the vicinal one, Eq. (3); `RegMixup` explains the fields."""

    eta: float = 1.0
    scale: Literal["mean", "sum"] = "mean"
    passes: Literal["joint", "separate"] = "joint"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("eta", self.eta, least=0)

    def draw(
        self, batch_size: int, image_size: int | tuple[int, ...], generator: torch.Generator | None = None
    ) -> Draw:
        return Draw() if self.eta == 0 else super().draw(batch_size, image_size, generator)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.eta == 0:
            return clean_loss(model(x), y)
        draws = self.split(draw, len(x))
        mixed_x = torch.cat([self.mix(x, d) for d in draws])
        if self.passes == "joint":
            logits = model(torch.cat([x, mixed_x]))
            clean_logits, mixed_logits = logits[: len(x)], logits[len(x) :]
        else:
            clean_logits, mixed_logits = model(x), model(mixed_x)
        clean = clean_loss(clean_logits, y)
        mixed = self.mixed_loss(mixed_logits, y, draws)
        total = clean.loss + self.eta * mixed
        if self.scale == "mean":
            total = total / (1 + self.eta)
        return LossOutput(loss=total, logits=clean.logits, parts={**clean.parts, "mixed": mixed.detach()})
