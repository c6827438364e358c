"""RegCutMix: plain cross-entropy, regularised by CutMix (the paper's appendix on other vicinal distributions)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regmixup.losses import image_losses, mixed_losses
from regmixup.mixing import Draw, ImageSize, cutmix, draw_boxes, take_boxes
from regmixup.objectives._passes import forward_both
from regmixup.objectives.erm import clean_loss
from regmixup.objectives.regmixup import RegMixup
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class RegCutMix(RegMixup):
    """CE(f(x), y) + eta CE(f(x_cut), y_cut): RegMixup with CutMix's vicinal distribution. Fields as in `RegMixup`."""

    alpha: float = field(default=1.0, kw_only=False)
    """> 0: large makes rectangles of about half the image; 1, as in CutMix's paper, makes all sizes equally likely."""

    @property
    def needs_images(self) -> bool:
        return self.eta > 0

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        if self.eta == 0:
            return Draw()
        return draw_boxes(batch_size, image_size, self.alpha, self.lam, self.pairing, self.samples, generator)

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.eta == 0:
            return clean_loss(model, x, y, self.loss)
        lam, partner, box = take_boxes(draw, x, self)
        cut_x = cutmix(x, box, partner)
        logits, cut_logits = forward_both(model, x, cut_x, self.passes)
        clean = image_losses(logits, y, self.loss).mean()
        mixed = mixed_losses(cut_logits, y, y[partner], lam, self.loss).mean()
        total = clean + self.eta * mixed
        if self.scale == "mean":
            total = total / (1 + self.eta)
        return LossOutput(loss=total, logits=logits, parts={"clean": clean.detach(), "mixed": mixed.detach()})
