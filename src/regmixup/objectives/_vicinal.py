"""Vicinal risk: cross-entropy on images sampled around the clean ones; and what Mixup and CutMix share."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regmixup.config import check_count, check_number
from regmixup.mixing import (
    Draw,
    LamMode,
    Pairing,
    height_and_width,
    logits_of,
    mixed_cross_entropy,
    sample_beta,
    sample_partners,
)
from regmixup.objectives._base import Objective, can_look, check_labels
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class Vicinal(Objective):
    """Cross-entropy on images sampled around the clean ones alone, Eq. (2) of the paper with m samples per image.

    A subclass says what is random (`draw`), what the sampled images are (`sampled`) and what they cost (`losses`).
    """

    part: ClassVar[str] = "mixed"
    """What the sampled images' loss is called among the parts."""

    @abstractmethod
    def sampled(self, x: Tensor, draw: Draw) -> Tensor:
        """The sampled images, (m N, C, H, W): one around every clean image, then another one around each."""

    @abstractmethod
    def losses(self, logits: Tensor, y: Tensor, draw: Draw) -> Tensor:
        """The cross-entropy of every sampled image, (m N,)."""

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        loss = self.losses(logits_of(model, self.sampled(x, draw)), y, draw).mean()
        return LossOutput(loss=loss, logits=None, parts={self.part: loss.detach()})


@dataclass(frozen=True, kw_only=True)
class Mixing(Vicinal):
    """Vicinal samples that mix pairs of images. A subclass says how (`mix`) and may refine the draw."""

    alpha: float = 1.0
    """Parameter of lambda ~ Beta(alpha, alpha), > 0; large is strong mixing."""
    lam: LamMode = "batch"
    """One lambda per batch, or one per sample."""
    pairing: Pairing = "derangement"
    """derangement: a random cycle, no image is its own partner (Algorithm 1). permutation: as released."""
    samples: int = 1
    """Vicinal draws per image, m of Eq. (2); their losses are averaged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("alpha", self.alpha, above=0)
        check_count("samples", self.samples)

    @property
    def per_batch(self) -> bool:
        return self.lam == "batch"

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

    def sampled(self, x: Tensor, draw: Draw) -> Tensor:
        return torch.cat([self.mix(x, one) for one in self.split(draw, len(x))])

    def losses(self, logits: Tensor, y: Tensor, draw: Draw) -> Tensor:
        check_labels(y, logits.shape[1])
        losses = [
            mixed_cross_entropy(part, y, one.lam, one.partner)  # type: ignore[arg-type]
            for part, one in zip(logits.chunk(self.samples), self.split(draw, len(y)), strict=True)
        ]
        return torch.cat(losses)

    def split(self, draw: Draw, batch_size: int) -> list[Draw]:
        """One `Draw` per vicinal sample, checked against the batch and this objective's fields."""
        leading = () if self.samples == 1 else (self.samples,)
        self.drawn(draw, "lam", leading if self.lam == "batch" else (*leading, batch_size))
        check_indices("partner", self.drawn(draw, "partner", (*leading, batch_size)), batch_size)
        return [draw] if self.samples == 1 else _unstack(draw, self.samples)


def check_indices(name: str, indices: Tensor, batch_size: int) -> None:
    """Indices of a draw must name images of the batch."""
    if can_look(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < batch_size:
        raise ValueError(f"draw.{name} must hold indices in [0, {batch_size}), got {indices}")


def _stack(draws: list[Draw]) -> Draw:
    """Several draws as one whose tensors carry a leading dimension."""

    def column(name: str) -> Any:
        values = [getattr(one, name) for one in draws]
        return None if values[0] is None else torch.stack(values)

    return type(draws[0])(**{f.name: column(f.name) for f in dataclasses.fields(draws[0])})


def _unstack(draw: Draw, count: int) -> list[Draw]:
    """The inverse of `_stack`."""
    values = ((f.name, getattr(draw, f.name)) for f in dataclasses.fields(draw))
    tensors: dict[str, Any] = {name: value for name, value in values if isinstance(value, Tensor)}
    return [dataclasses.replace(draw, **{name: value[i] for name, value in tensors.items()}) for i in range(count)]
