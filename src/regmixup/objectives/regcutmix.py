"""RegCutMix: plain cross-entropy, regularised by CutMix (the paper's appendix on other vicinal distributions)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regmixup.config import Positive
from regmixup.mixing import Draw, ImageSize, cutmix, draw_pairs, height_and_width, take_boxes
from regmixup.objectives.regmixup import RegMixup


@dataclass(frozen=True, kw_only=True)
class RegCutMix(RegMixup):
    """CE(f(x), y) + eta CE(f(x_cut), y_cut): RegMixup with CutMix's vicinal distribution. Fields as in `RegMixup`."""

    alpha: Positive = field(default=1.0, kw_only=False)
    """> 0: large makes rectangles of about half the image; 1, as in CutMix's paper, makes all sizes equally likely."""

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        if self.eta == 0:
            return Draw()
        size = height_and_width(image_size)
        return draw_pairs(batch_size, self.alpha, self.lam, self.pairing, self.samples, generator, boxes_in=size)

    def mix(self, x: Tensor, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
        lam, partner, box = take_boxes(draw, x, self)
        return cutmix(x, box, partner), lam, partner
