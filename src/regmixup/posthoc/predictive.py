"""From several logits per image, or a distribution of them, to one prediction.

For Gaussian logits that is the mean of softmax(s) for s ~ N(logits, variance), in two ways.
`mean_field` shrinks the logits by a closed form; `monte_carlo` averages over draws. Both act on predictions that carry
`logit_variance`, as those of a Gaussian-process head do (SNGP), and are what the last-layer Laplace ends in. For the
models of a deep ensemble it is the mean over them: `ensemble`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar

import torch
from torch import Tensor

from regmixup.config import Count, CountOrZero, NotNegative, check_number
from regmixup.posthoc.base import Posthoc, as_given, probabilities, required
from regmixup.types import LOG_OF_PROBS, Predictions

_PIECE = 2**20
# torch draws normal numbers in groups of 16. Whole groups of rows make the stream the same however it is cut.
_GROUP = 16
_KEPT = 2**28  # numbers, a gigabyte in float32; four times as many on a GPU


def mean_field(logits: Tensor, variance: Tensor, factor: float = math.pi / 8) -> Tensor:
    """Return logits_k / sqrt(1 + factor * variance_k): the softmax of these approximates the mean softmax.

    factor pi / 8 is MacKay's constant; SNGP tunes it (20 on CIFAR-10, 7.5 on CIFAR-100). variance: (N, K) or (N, 1).

    >>> mean_field(torch.tensor([[2.0, -2.0]]), torch.tensor([[3.0]]), factor=1.0)
    tensor([[ 1., -1.]])
    """
    return logits / (1 + factor * variance).sqrt()


@dataclass(frozen=True, eq=False)
class Noise:
    """Normal numbers by the generator's state before the draw, the same for all sets, prior variances, temperatures.

    Drawing takes longer than what is done with the numbers, and is not parallel. Up to `_KEPT` numbers are kept.
    """

    kept: dict[object, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def draw(self, generator: torch.Generator, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return what `_draw` would, and leave the generator in the state that it would."""
        key = (bytes(generator.get_state().numpy()), shape, like.dtype, like.device)
        if key in self.kept:
            noise, after = self.kept[key]
            generator.set_state(after)
            return noise
        noise = _draw(generator, shape, like)
        most = _KEPT if noise.device.type == "cpu" else 4 * _KEPT
        if sum(old.numel() for old, _ in self.kept.values()) + noise.numel() <= most:
            self.kept[key] = noise, generator.get_state()
        return noise


def _draw(generator: torch.Generator, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Draw normal numbers (N, S, K) of the type of a tensor; return them on its device as (N, K, S).

    In that order a softmax over the classes works on whole vectors of samples.
    """
    noise = torch.randn(*shape, dtype=like.dtype, generator=generator)
    return noise.to(like.device).transpose(1, 2).contiguous()


def monte_carlo(
    logits: Tensor,
    variance: Tensor,
    *,
    samples: int,
    seed: int = 0,
    temperature: float = 1.0,
    basis: Tensor | None = None,
    noise: Noise | None = None,
) -> Tensor:
    """Return 1/S sum_s softmax((logits + noise_s) / T), float64 (N, K), with noise_s ~ N(0, diag(variance)) per row.

    variance: (N, K), or (N, 1) if shared by the classes, which are independent all the same.
    basis: (K, K) orthogonal Q; the noise then has covariance Q diag(variance) Q^T.
    noise: what is kept of earlier calls, so that it need not be drawn again.
    The same seed gives the same noise for every temperature, and a row's noise does not depend on the rows after it.
    Samples have the precision of the logits, at least float32; their mean is taken in float64.

    >>> monte_carlo(torch.zeros(1, 4), torch.zeros(1, 1), samples=3)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]], dtype=torch.float64)
    """
    check_number("temperature", temperature, above=0)
    exact = torch.float64 if logits.dtype == torch.float64 else torch.float32
    generator = torch.Generator().manual_seed(seed)
    draw = noise.draw if noise is not None else _draw
    classes = logits.shape[1]
    rows = max(1, _PIECE // (_GROUP * samples * classes)) * _GROUP
    probs = []
    for mean, spread in zip(logits.split(rows), variance.split(rows), strict=True):
        whole = math.ceil(len(mean) / _GROUP) * _GROUP
        centre = (mean.to(exact) / temperature)[..., None]
        scale = spread.to(exact).sqrt() / temperature
        drawn = draw(generator, (whole, samples, classes), centre)[: len(mean)]
        if basis is None:
            sampled = centre + scale[..., None] * drawn
        else:
            sampled = torch.baddbmm(centre, basis.to(centre) * scale[:, None], drawn)
        probs.append(sampled.softmax(dim=1).mean(dim=2, dtype=torch.float64))
    return torch.cat(probs)


@dataclass(frozen=True, kw_only=True)
class MeanField(Posthoc):
    """Logits shrunk by the variance that a Gaussian-process head stored: logits / sqrt(1 + factor * variance)."""

    head: ClassVar[str] = "gp"

    factor: NotNegative = math.pi / 8

    def __call__(self, predictions: Predictions, temperature: float = 1.0) -> Predictions:
        return shrunk(predictions, required(predictions, "logit_variance", "MeanField"), self.factor, temperature)


@dataclass(frozen=True, kw_only=True)
class MonteCarlo(Posthoc):
    """The mean softmax of `samples` draws of the logits of a Gaussian-process head, independent per class (SNGP).

    Every call starts from `seed`, so equal predictions give equal probabilities, and temperatures share their noise.
    """

    head: ClassVar[str] = "gp"

    samples: Count = 10
    seed: CountOrZero = 0

    def __call__(self, predictions: Predictions, temperature: float = 1.0) -> Predictions:
        logits, variance = predictions.logits, required(predictions, "logit_variance", "MonteCarlo")
        probs = monte_carlo(logits, variance, samples=self.samples, seed=self.seed, temperature=temperature)
        return replace(predictions, probs=probs, logit_variance=None, member_logits=None)


def shrunk(predictions: Predictions, variance: Tensor, factor: float, temperature: float) -> Predictions:
    """Return the predictions with the logits of `mean_field`."""
    logits = mean_field(predictions.logits, variance, factor)
    shrunken = replace(predictions, logits=logits, probs=None, logit_variance=None, member_logits=None)
    return as_given(shrunken, temperature)


def ensemble(members: Sequence[Predictions]) -> Predictions:
    """Return the mean over M members, for the same samples: of the logits, as in the paper's DE.

    logits: the mean of the members' logits. member_logits: (M, N, K).
    probs: the mean of the members' probabilities where a member has `probs` that are not the softmax of its logits
    (Monte-Carlo); else None, the softmax of the mean logits.
    Features and heads belong to one member and are left out; of `info` stays what all members share.

    >>> sure, unsure = (Predictions(torch.tensor([[s, 0.0]]), torch.tensor([0])) for s in (2.0, 0.0))
    >>> ensemble([sure, unsure]).logits
    tensor([[1., 0.]])
    """
    if not isinstance(members, Sequence) or not all(isinstance(member, Predictions) for member in members):
        raise ValueError(f"members must be a list of Predictions, got {members!r:.80}")
    if not members:
        raise ValueError("members must hold at least one Predictions, got none")
    first = members[0]
    for position, member in enumerate(members):
        same = member.logits.shape == first.logits.shape and torch.equal(member.labels, first.labels)
        if not same or member.dataset != first.dataset:
            raise ValueError(
                f"members must predict the same dataset with the same labels and classes, got {first!r} and, in "
                f"position {position}, {member!r}"
            )
    stacked = torch.stack([member.logits for member in members])
    mixes_probs = any(member.probs is not None for member in members)
    info = {key: text for key, text in first.info.items() if all(m.info.get(key) == text for m in members)}
    if any(member.from_probs for member in members):
        info["logits"] = LOG_OF_PROBS
    return Predictions(
        stacked.mean(dim=0, dtype=torch.float64).to(stacked.dtype),
        first.labels,
        probs=reduce(torch.add, map(probabilities, members)) / len(members) if mixes_probs else None,
        member_logits=stacked,
        dataset=first.dataset,
        role=first.role,
        info=info,
    )
