"""CutMix: paste a rectangle of the partner image (Yun et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regmixup.mixing import Draw, box_lam, cutmix, sample_box
from regmixup.objectives._vicinal import Vicinal


@dataclass(frozen=True, kw_only=True)
class CutMix(Vicinal):
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
        if draw.box is None or draw.partner is None:
            raise ValueError(f"draw must hold a box, got {draw}")
        return cutmix(x, draw.box, draw.partner)
