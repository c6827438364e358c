"""Mixup: train on convex combinations of image pairs (Zhang et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regmixup.config import Count, Positive, introduced
from regmixup.losses import LossLike, mixed_losses
from regmixup.mixing import Draw, ImageSize, LamMode, Pairing, draw_pairs, mixup, take_pairs
from regmixup.networks.outputs import logits_of
from regmixup.objectives._base import Objective
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class Mixup(Objective):
    """Cross-entropy on lam x_i + (1 - lam) x_j with label lam y_i + (1 - lam) y_j (Section 2 of the paper).

    lam ~ Beta(alpha, alpha) is not folded to max(lam, 1 - lam). `logits` is None: no image is forwarded clean.
    """

    alpha: Positive = field(default=0.3, kw_only=False)
    """> 0: large is strong mixing. The default is the paper's choice on CIFAR."""
    lam: LamMode = "batch"
    """One lambda for the batch, or one per sample."""
    pairing: Pairing = "derangement"
    """derangement: no image is its own partner; permutation: as released."""
    samples: Count = 1
    """Mixed images around each image, m of Eq. (2); their losses are averaged."""
    loss: LossLike | None = introduced(None)
    """Another loss of soft targets, such as rm.losses.Focal(); None is cross-entropy."""

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        return draw_pairs(batch_size, self.alpha, self.lam, self.pairing, self.samples, generator)

    def mix(self, x: Tensor, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mixed images, and lambda and the partner of each."""
        lam, partner = take_pairs(draw, len(x), self)
        return mixup(x, lam, partner), lam, partner

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        mixed_x, lam, partner = self.mix(x, draw)
        logits = logits_of(model, mixed_x)
        self.warn_of_probabilities(model, logits)
        mixed = mixed_losses(logits, y, y[partner], lam, self.loss).mean()
        return LossOutput(loss=mixed, logits=None, parts={"mixed": mixed.detach()})
