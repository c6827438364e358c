"""CutMix: paste a rectangle of the partner image (Yun et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regmixup.mixing import Draw, box_lam, cutmix, sample_box
from regmixup.objectives._base import can_look
from regmixup.objectives._vicinal import Mixing


@dataclass(frozen=True, kw_only=True)
class CutMix(Mixing):
    """Cross-entropy on images with a pasted rectangle; the label weighs the two classes by area.

    The rectangle covers about 1 - lam of the image, lam ~ Beta(alpha, alpha); after clipping at the border lam is
    recomputed from the pixels that were really pasted. lam="sample" draws a rectangle for every image.
    """

    alpha: float = 1.0

    def draw_one(self, batch_size: int, image_size: tuple[int, int], generator: torch.Generator | None) -> Draw:
        draw = super().draw_one(batch_size, image_size, generator)
        assert draw.lam is not None
        box = sample_box(draw.lam, image_size, generator)
        return replace(draw, lam=box_lam(box, image_size), box=box)

    def mix(self, x: Tensor, draw: Draw) -> Tensor:
        assert draw.lam is not None
        assert draw.partner is not None
        if draw.box is None or draw.box.shape != (*draw.lam.shape, 4):
            raise ValueError(f"draw.box must have shape {(*draw.lam.shape, 4)}, got {draw.box}")
        size = (x.shape[-2], x.shape[-1])
        if can_look(draw.box) and not torch.equal(box_lam(draw.box, size), draw.lam):
            raise ValueError(f"draw must have been made for images of {size}: its lam is not its box's share of them")
        return cutmix(x, draw.box, draw.partner)
