"""RegMixup: plain cross-entropy, regularised by cross-entropy on strongly mixed images (Pinto et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from regmixup.config import Count, NotNegative, Positive, introduced
from regmixup.losses import LossLike, image_losses, mixed_losses
from regmixup.mixing import Draw, ImageSize, LamMode, Pairing, draw_pairs, mixup, take_pairs
from regmixup.objectives._base import Objective
from regmixup.objectives._passes import Passes, forward_both
from regmixup.objectives.erm import clean_loss
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class RegMixup(Objective):
    """CE(f(x), y) + eta CE(f(x_mix), y_mix): equation (3) and Algorithm 1 of the paper.

    x_mix = lam x_i + (1 - lam) x_j and y_mix likewise, lam ~ Beta(alpha, alpha). A large alpha keeps lam near 1/2;
    because the clean images are there too, strong mixing does no harm and raises the entropy between classes.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
    >>> out = RegMixup(20)(model, torch.rand(8, 3, 8, 8), torch.randint(10, (8,)))
    >>> bool(torch.isclose(out.loss, (out.parts["clean"] + out.parts["mixed"]) / 2)), tuple(out.logits.shape)
    (True, (8, 10))
    """

    alpha: Positive = field(default=20.0, kw_only=False)
    """> 0, for lambda ~ Beta(alpha, alpha): the paper selected 20 on CIFAR-10, and 10 on CIFAR-100 and ImageNet."""
    eta: NotNegative = 1.0
    """>= 0: weight of the mixed term. With 0, nothing is mixed, and the loss is exactly ERM's."""
    scale: Literal["mean", "sum"] = "mean"
    """mean: divide the loss by 1 + eta, as in the released code (eta = 1). sum: do not, as in Eq. (3). With the same
    learning rate and weight decay these are different recipes."""
    passes: Passes = "joint"
    """joint: clean and mixed images in one forward pass, so batch norm sees both, as in the released code. separate:
    two passes. separate-clean: two passes, and predictions are normalised with statistics of clean images only."""
    lam: LamMode = "batch"
    """One lambda per batch, or one per sample."""
    pairing: Pairing = "derangement"
    """derangement: a random cycle, so no image is its own partner (Algorithm 1). permutation: as in the released
    code."""
    samples: Count = 1
    """Mixed images per clean image, m of Eq. (2)."""
    loss: LossLike | None = introduced(None)
    """Another loss of soft targets for both terms, such as rm.losses.Focal(); None is cross-entropy."""

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        if self.eta == 0:
            return Draw()
        return draw_pairs(batch_size, self.alpha, self.lam, self.pairing, self.samples, generator)

    def mix(self, x: Tensor, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
        """Return x_mix, and lambda and the partner of each of these images."""
        lam, partner = take_pairs(draw, len(x), self)
        return mixup(x, lam, partner), lam, partner

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.eta == 0:
            return clean_loss(model, x, y, self.loss)
        mixed_x, lam, partner = self.mix(x, draw)
        logits, mixed_logits = forward_both(model, x, mixed_x, self.passes)
        clean = image_losses(logits, y, self.loss).mean()
        mixed = mixed_losses(mixed_logits, y, y[partner], lam, self.loss).mean()
        total = clean + self.eta * mixed
        if self.scale == "mean":
            total = total / (1 + self.eta)
        return LossOutput(loss=total, logits=logits, parts={"clean": clean.detach(), "mixed": mixed.detach()})
