"""A bi-modal vicinal distribution with importance sampling, as the paper's conclusion suggests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from regmixup.config import InnerShare, NotNegative, Positive
from regmixup.losses import mixed_losses
from regmixup.mixing import Draw, ImageSize, draw_pairs, mixup, sample_uniform, stack_draws, take, take_pairs
from regmixup.networks.outputs import logits_of
from regmixup.objectives.erm import clean_loss
from regmixup.objectives.mixup import Mixup
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class CoinDraw(Draw):
    """Mixup's draw, and stays, True for an image that stays clean: (N,) bool, with a leading m for m samples."""

    stays: Tensor


@dataclass(frozen=True, kw_only=True)
class Bimodal(Mixup):
    """Every image clean or mixed by its own coin, weighted to be RegMixup in the mean. An extension of this project.

    The paper's conclusion proposes a bi-modal vicinal distribution with importance sampling, so that unperturbed
    images are used with high probability; it leaves the estimator open, and this is ours. The target is

        lambda ~ gamma delta(1) + (1 - gamma) Beta(alpha, alpha),   gamma = 1 / (1 + eta),

    under which the expected loss is RegMixup's, gamma mean(c_i) + (1 - gamma) mean(m_i), with c_i the clean
    cross-entropy of image i and m_i the mixed one. Image i stays clean with probability p = `clean_probability`
    instead of gamma (s_i = 1, else 0) and is weighted by target over proposal:

        loss = mean_i( s_i (gamma / p) c_i + (1 - s_i) (1 - gamma) / (1 - p) m_i )    (scale="mean")

    E[s_i] = p, so for any lambda and partners the expectation over the coins is RegMixup's loss, and so is that of the
    gradient, for a network that treats images one by one (batch norm sees other statistics). N images are forwarded
    instead of 2N, in one pass whose shapes do not depend on the coins. The coins add the variance

        p (1 - p) / N^2  sum_i (gamma c_i / p - (1 - gamma) m_i / (1 - p))^2

    to RegMixup's, for every coordinate of the gradient, too. Where sum c_i^2 = sum m_i^2 it is smallest
    at p = gamma. Hence the default of 1/2: at eta = 1 both weights are 1, and an image is clean every second time,
    which under plain Mixup it never is. Nearer to 1 more images stay clean, and the few mixed ones count for more.

    `parts` are the unbiased estimates mean(s_i c_i) / p of mean(c_i) and mean((1 - s_i) m_i) / (1 - p) of mean(m_i), so
    that the loss is gamma clean + (1 - gamma) mixed exactly. `logits` is None: not every image is forwarded clean.
    The other fields are those of `Mixup`.

    >>> import torch
    >>> objective = Bimodal(eta=3)  # weights (1/4) / (1/2) for clean images and (3/4) / (1/2) for mixed ones
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False))
    >>> _ = torch.nn.init.zeros_(model[1].weight)  # every cross-entropy is log 2 = 0.6931
    >>> draw = objective.draw(4, 2, torch.Generator().manual_seed(1))
    >>> draw.stays
    tensor([ True,  True, False,  True])
    >>> out = objective(model, torch.rand(4, 1, 2, 2), torch.tensor([0, 1, 1, 0]), draw=draw)
    >>> round(out.loss.item(), 4)  # (3 * 1/2 + 3/2) / 4 log 2
    0.5199
    """

    alpha: Positive = field(default=20.0, kw_only=False)
    """> 0: of lambda ~ Beta(alpha, alpha)."""
    eta: NotNegative = 1.0
    """>= 0: weight of the mixed term; 0 is ERM exactly."""
    scale: Literal["mean", "sum"] = "mean"
    """mean: the loss above; sum: 1 + eta times it."""
    clean_probability: InnerShare = 0.5
    """p, above 0 and below 1."""

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        if self.eta == 0:
            return Draw()
        draws: list[Draw] = []
        for _ in range(self.samples):
            pairs = draw_pairs(batch_size, self.alpha, self.lam, self.pairing, generator=generator)
            stays = sample_uniform((batch_size,), generator) < self.clean_probability
            draws.append(CoinDraw(lam=pairs.lam, partner=pairs.partner, stays=stays))
        return stack_draws(draws)

    def draw_part(
        self, batch_size: int, image_size: ImageSize, *, shared: torch.Generator | None, own: torch.Generator | None
    ) -> Draw:
        draw = super().draw_part(batch_size, image_size, shared=shared, own=own)
        if not isinstance(draw, CoinDraw) or shared is own or not self.per_batch:
            return draw
        # Parts share lambda, not the coins: those of an image in one part and of another in the next are independent.
        return replace(draw, stays=sample_uniform(tuple(draw.stays.shape), own) < self.clean_probability)

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.eta == 0:
            return clean_loss(model, x, y, self.loss)
        lam, partner = take_pairs(draw, len(x), self)
        leading = () if self.samples == 1 else (self.samples,)
        stays = take(draw, "stays", (*leading, len(x)), self).flatten()
        lam = torch.where(stays, 1.0, lam)  # which mixes nothing into the image and keeps its label
        logits = logits_of(model, mixup(x, lam, partner))
        self.warn_of_probabilities(model, logits)
        losses = mixed_losses(logits, y, y[partner], lam, self.loss)
        clean = torch.where(stays, losses, 0.0).mean() / self.clean_probability
        mixed = torch.where(stays, 0.0, losses).mean() / (1 - self.clean_probability)
        total = clean + self.eta * mixed
        if self.scale == "mean":
            total = total / (1 + self.eta)
        return LossOutput(loss=total, logits=None, parts={"clean": clean.detach(), "mixed": mixed.detach()})
