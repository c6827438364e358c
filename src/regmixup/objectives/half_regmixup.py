"""RegMixup at the cost of plain training: half of the batch clean, the other half mixed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regmixup.config import InnerShare
from regmixup.losses import image_losses, mixed_losses
from regmixup.mixing import Draw, ImageSize, sample_order, take
from regmixup.objectives._passes import forward_both
from regmixup.objectives.erm import clean_loss
from regmixup.objectives.regmixup import RegMixup
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class SplitDraw(Draw):
    """RegMixup's draw, and the images forwarded clean, (n,), and mixed, (N - n,): int64 indices into the batch."""

    clean: Tensor
    mixed: Tensor


@dataclass(frozen=True, kw_only=True)
class HalfRegMixup(RegMixup):
    """An unbiased estimate of RegMixup's loss that forwards N images instead of 2N. An extension of this project.

    Let c_i be the clean cross-entropy of image i and m_i the mixed one, for this step's lambda and partners. A set S
    of n images, uniform among all of that size, is forwarded clean, and the rest mixed; partners come from the whole
    batch. With gamma = 1 / (1 + eta)

        loss = gamma mean(c_i: i in S) + (1 - gamma) mean(m_i: i not in S)    (scale="mean"; "sum" is 1 + eta times it)

    Every image is in S with probability n / N, so the first mean has expectation sum_i (n / N) c_i / n = mean(c_i),
    and likewise the second. Over the choice of S, loss and gradient are thus in expectation those of `RegMixup` with
    the same lambda and partners, and so they are over all the randomness. This takes a network that treats images
    one by one: batch norm sees other statistics.

    The price is variance: that of `RegMixup`, plus, in expectation, the variance over S. For given lambda and partners
    the latter is that of a mean over n of N without replacement,

        (1 / n - 1 / N) Var(d_i),   d_i = gamma c_i - (1 - gamma) n / (N - n) m_i,    Var with divisor N - 1;

    for every coordinate of the gradient, too. At eta = 1 and share = 1/2 it is Var(c_i - m_i) / 4N.

    The other fields are those of `RegMixup`; `samples` mixes every image of the second set m times.
    Only the images of S are forwarded clean, so `logits` is None (except for eta = 0, which is ERM on the whole batch).

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
    >>> draw = HalfRegMixup().draw(6, (3, 8, 8))
    >>> draw.clean, draw.mixed
    (tensor([3, 4, 2]), tensor([5, 0, 1]))
    >>> out = HalfRegMixup()(model, torch.rand(6, 3, 8, 8), torch.randint(10, (6,)), draw=draw)
    >>> bool(torch.isclose(out.loss, (out.parts["clean"] + out.parts["mixed"]) / 2))
    True
    """

    share: InnerShare = 0.5
    """Share of the images that is forwarded clean, above 0 and below 1: n is round(share N), from 1 to N - 1. A batch
    of 1 pairs with itself, so its mixed image is the clean one; it is forwarded as both."""

    def num_clean(self, batch_size: int) -> int:
        """Return n, the size of S."""
        return max(1, min(round(self.share * batch_size), batch_size - 1))

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        mixing = super().draw(batch_size, image_size, generator)
        if self.eta == 0:
            return mixing
        order, cut = sample_order(batch_size, generator), self.num_clean(batch_size)
        mixed = order[cut:] if batch_size > 1 else order
        return SplitDraw(lam=mixing.lam, partner=mixing.partner, clean=order[:cut], mixed=mixed)

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.eta == 0:
            return clean_loss(model, x, y, self.loss)
        count, num_clean = len(x), self.num_clean(len(x))
        mixed_x, lam, partner = self.mix(x, draw)
        in_s = take(draw, "clean", (num_clean,), self)
        not_in_s = take(draw, "mixed", (max(1, count - num_clean),), self)
        rows = torch.cat([not_in_s + count * sample for sample in range(self.samples)])  # of the m N mixed images

        clean_logits, mixed_logits = forward_both(model, x[in_s], mixed_x[rows], self.passes)
        self.warn_of_probabilities(model, clean_logits)
        clean = image_losses(clean_logits, y[in_s], self.loss).mean()
        mixed = mixed_losses(mixed_logits, y[not_in_s], y[partner[rows]], lam[rows], self.loss).mean()
        total = clean + self.eta * mixed
        if self.scale == "mean":
            total = total / (1 + self.eta)
        return LossOutput(loss=total, logits=None, parts={"clean": clean.detach(), "mixed": mixed.detach()})
