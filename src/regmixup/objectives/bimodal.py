"""A bi-modal vicinal distribution with importance sampling, as the paper's conclusion suggests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regmixup.config import check_number
from regmixup.mixing import Draw, logits_of, sample_coins
from regmixup.objectives._two_terms import Terms, TwoTerms
from regmixup.objectives.mixup import Mixup


@dataclass(frozen=True)
class CoinDraw(Draw):
    """Mixup's draw, and whether each image stays clean: (N,) bool, with a leading m for m samples."""

    stays: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Bimodal(TwoTerms, Mixup):
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

    alpha, lam, pairing, samples, eta and scale are those of `RegMixup`; "sum" is 1 + eta times the loss above, and
    eta = 0 is ERM exactly.

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

    alpha: float = 20.0
    clean_probability: float = 0.5
    """p: probability that an image is clean, above 0 and below 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("clean_probability", self.clean_probability, above=0, below=1)

    def draw_one(self, batch_size: int, image_size: tuple[int, int], generator: torch.Generator | None) -> Draw:
        mixing = super().draw_one(batch_size, image_size, generator)
        stays = sample_coins(self.clean_probability, (batch_size,), generator)
        return CoinDraw(lam=mixing.lam, partner=mixing.partner, stays=stays)

    def split(self, draw: Draw, batch_size: int) -> list[Draw]:
        """As for Mixup; an image that stays clean has lambda 1, which mixes nothing into it and keeps its label."""
        return [
            replace(one, lam=torch.where(self.drawn(one, "stays", (batch_size,)), 1.0, one.lam))  # type: ignore[arg-type]
            for one in super().split(draw, batch_size)
        ]

    def terms(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> Terms:
        losses = self.losses(logits_of(model, self.sampled(x, draw)), y, draw)
        assert isinstance(draw, CoinDraw)
        assert draw.stays is not None
        stays = draw.stays.flatten()
        clean = torch.where(stays, losses, 0.0).mean() / self.clean_probability
        mixed = torch.where(stays, 0.0, losses).mean() / (1 - self.clean_probability)
        return Terms(clean, mixed)
