"""CutMix: paste a rectangle of the partner image (Yun et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from regmixup.config import Positive
from regmixup.mixing import Draw, ImageSize, cutmix, draw_pairs, height_and_width, take_boxes
from regmixup.objectives.mixup import Mixup


@dataclass(frozen=True, kw_only=True)
class CutMix(Mixup):
    """Cross-entropy on images with a pasted rectangle; the label weighs the two classes by area.

    The rectangle covers about 1 - lam of the image, lam ~ Beta(alpha, alpha); after clipping at the border lam is
    recomputed from the pixels that were really pasted. lam="sample" draws a rectangle for every image.
    Fields as in `Mixup`.
    """

    alpha: Positive = field(default=1.0, kw_only=False)
    """> 0: large makes rectangles of about half the image; 1, as in CutMix's paper, makes all sizes equally likely."""

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        size = height_and_width(image_size)
        return draw_pairs(batch_size, self.alpha, self.lam, self.pairing, self.samples, generator, boxes_in=size)

    def mix(self, x: Tensor, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
        lam, partner, box = take_boxes(draw, x, self)
        return cutmix(x, box, partner), lam, partner
