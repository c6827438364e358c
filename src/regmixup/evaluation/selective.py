"""Selective prediction: answer where the model is sure, abstain elsewhere. Scores are larger where it is less sure.

Samples with equal scores cannot be told apart, so they are accepted together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.evaluation.bootstrap import Counts
from regmixup.evaluation.ordering import precise, take_columns
from regmixup.evaluation.resampled_outcomes import cumulative


@dataclass(frozen=True)
class RiskCoverage:
    """threshold: (P,) rising, the distinct scores; coverage: (P,) the share of samples with score <= threshold;
    risk: (P,) the share of errors among those."""

    threshold: Tensor
    coverage: Tensor
    risk: Tensor


def risk_coverage(scores: Tensor, correct: Tensor) -> RiskCoverage:
    """The risk-coverage curve (El-Yaniv and Wiener, 2010) of scores (N,) and whether each prediction was right (N,).

    >>> curve = risk_coverage(torch.tensor([0.1, 0.2, 0.2, 0.9]), torch.tensor([True, True, False, False]))
    >>> curve.coverage.tolist(), [round(risk, 4) for risk in curve.risk.tolist()]
    ([0.25, 0.75, 1.0], [0.0, 0.3333, 0.5])
    """
    levels, size, errors = _levels(scores, correct)
    accepted = size.cumsum(0)
    return RiskCoverage(levels, precise(accepted) / int(accepted[-1]), precise(errors.cumsum(0)) / accepted)


def aurc(scores: Tensor, correct: Tensor) -> float:
    """Area under the risk-coverage curve: 1/N sum_i risk of the i surest samples (Geifman et al., 2019).

    Ties: the mean over all orders of the tied samples, exactly. Within a group of equal scores the expected number of
    errors among the first few grows in proportion, so sample j of a group with g samples and e errors, after a samples
    with b errors, adds (b + j e / g) / (a + j).

    >>> round(aurc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True])), 6)  # (1/3 + 1/4) / 4
    0.145833
    """
    _, size, errors = _levels(scores, correct)
    total = int(size.sum())
    group = torch.arange(len(size), device=size.device).repeat_interleave(size)
    rank = torch.arange(1, total + 1, device=size.device)
    before, errors_before = size.cumsum(0) - size, errors.cumsum(0) - errors
    expected = errors_before[group] + precise((rank - before[group]) * errors[group]) / size[group]
    return float((expected / rank).mean())


def resample_aurc(scores: Tensor, correct: Tensor, counts: Counts) -> Tensor:
    """`aurc` of every resample, (R,). counts: of the N samples.

    A group of equal scores with g samples and e errors, after a samples with b errors, adds
    sum_j (b + j e / g) / (a + j) = e + (b - a e / g) (H(a + g) - H(a)), with the harmonic numbers H.
    """
    scores, correct = _checked(scores, correct)
    if len(counts) != len(scores):
        raise ValueError(f"counts must be of as many samples as scores, {len(scores)}, got {len(counts)}")
    ordered, order = scores.sort()
    # Where each group of equal scores begins, and the last one ends.
    bounds = torch.cat([(ordered[1:] != ordered[:-1]).nonzero().squeeze(1) + 1, order.new_tensor([len(scores)])])
    bounds = torch.cat([order.new_zeros(1), bounds])
    wrong = (~correct[order]).to(torch.uint8)
    rank = torch.arange(1, len(scores) + 1, device=scores.device)
    harmonic = torch.cat([precise(rank[:0]).new_zeros(1), precise(rank).reciprocal().cumsum(0)])
    found = []
    for chunk in counts.chunks(scores.device):
        drawn = take_columns(chunk, order)
        total, errors = (take_columns(cumulative(one, torch.int32), bounds).long() for one in (drawn, drawn * wrong))
        size, own = total.diff(dim=1), errors.diff(dim=1)
        ahead = errors[:, :-1] - total[:, :-1] * (precise(own) / size.clamp(min=1))
        found.append((own + ahead * harmonic[total].diff(dim=1)).sum(dim=1) / len(scores))
    return torch.cat(found)


def eaurc(scores: Tensor, correct: Tensor) -> float:
    """AURC minus that of the best order, all right predictions before all errors (Geifman et al., 2019)."""
    wrong = ~_checked(scores, correct)[1]
    return aurc(scores, correct) - aurc(wrong.long(), ~wrong) if wrong.any() else 0.0


def coverage_at_risk(scores: Tensor, correct: Tensor, *, risk: float) -> float:
    """The largest coverage at which some threshold keeps the risk at or below `risk`; 0 if none does.

    >>> coverage_at_risk(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True]), risk=0.25)
    1.0
    """
    check_number("risk", risk, least=0, most=1)
    curve = risk_coverage(scores, correct)
    # risk is a fraction such as 0.05 while errors / accepted is rounded: 1e-12 lets 5 of 100 pass.
    kept = curve.coverage[curve.risk <= risk + 1e-12]
    return float(kept[-1]) if len(kept) else 0.0


def _levels(scores: Tensor, correct: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct scores, rising, with the numbers of samples and of errors at each."""
    scores, correct = _checked(scores, correct)
    levels, index = scores.unique(return_inverse=True)
    size = torch.bincount(index, minlength=len(levels))
    return levels, size, torch.bincount(index[~correct], minlength=len(levels))


def _checked(scores: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    scores, correct = torch.as_tensor(scores).detach(), torch.as_tensor(correct)
    if scores.ndim != 1 or len(scores) == 0:
        raise ValueError(f"scores must be a non-empty (N,) tensor, got shape {tuple(scores.shape)}")
    if torch.isnan(scores).any():
        raise ValueError(f"scores must not contain NaN, got {int(torch.isnan(scores).sum())} of {len(scores)}")
    if correct.shape != scores.shape or correct.dtype != torch.bool:
        raise ValueError(
            f"correct must be booleans of shape ({len(scores)},), got {correct.dtype} {tuple(correct.shape)}"
        )
    return scores, correct
