"""Selective prediction: answer where the model is sure, abstain elsewhere. Scores are larger where it is less sure.

Samples with equal scores cannot be told apart, so they are accepted together. The areas are means over all orders of
the tied samples. Metrics take scores (N,) and whether each prediction was right (N,), or `ScorePair.of_errors` of both,
which may carry weights: those of the right predictions and those of the wrong ones. To add a metric, write its function
and enter it in SELECTIVE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regmixup.metrics.detection import ScorePair, auroc, check_correct, check_vector
from regmixup.metrics.pieces import precise
from regmixup.metrics.ranked import Value


@dataclass(frozen=True)
class RiskCoverage:
    """threshold: (P,) rising, the distinct scores; coverage: (P,) the share of samples with score <= threshold;
    risk: (P,) the share of errors among those."""

    threshold: Tensor
    coverage: Tensor
    risk: Tensor


def risk_coverage(scores: Tensor, correct: Tensor) -> RiskCoverage:
    """Return the risk-coverage curve (El-Yaniv and Wiener, 2010) of scores (N,) and right predictions (N,).

    >>> curve = risk_coverage(torch.tensor([0.1, 0.2, 0.2, 0.9]), torch.tensor([True, True, False, False]))
    >>> curve.coverage.tolist(), [round(risk, 4) for risk in curve.risk.tolist()]
    ([0.25, 0.75, 1.0], [0.0, 0.3333, 0.5])
    """
    scores = check_vector("scores", scores)
    correct = check_correct(correct, len(scores))
    levels, index = scores.unique(return_inverse=True)
    accepted = torch.bincount(index, minlength=len(levels)).cumsum(0)
    errors = torch.bincount(index[~correct], minlength=len(levels)).cumsum(0)
    return RiskCoverage(levels, precise(accepted) / len(scores), precise(errors) / accepted)


def aurc(scores: Tensor | ScorePair, correct: Tensor | None = None) -> Value:
    """Return the area under the risk-coverage curve: 1/N sum_i risk of the i surest samples (Geifman et al., 2019).

    An error at rank r, from 1 by its score, adds sum_{i >= r} 1 / i to N AURC. Errors at ranks a + 1 to t add
    F(t) - F(a) with F(t) = t (1 + H(N) - H(t)), H the harmonic numbers; so an error whose group of equal scores has
    these ranks adds (F(t) - F(a)) / (t - a).

    >>> round(aurc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True])), 6)  # (1/3 + 1/4) / 4
    0.145833
    """
    pair = ScorePair.of_errors(scores, correct)
    right, wrong = pair.inside, pair.outside
    total = right.total + wrong.total
    right_below, right_up_to = pair.inside_below
    first = right_below + wrong.weight_below(wrong.values)
    last = right_up_to + wrong.weight_below(wrong.values, tied=True)
    ranks = precise(torch.arange(1, int(total.max()) + 1, device=total.device))
    harmonic = torch.cat([ranks.new_zeros(1), ranks.reciprocal().cumsum(0)])

    def area(rank: Tensor) -> Tensor:
        return rank * (1 + harmonic.take(total.long()) - harmonic.take(rank.long()))

    mean_over_ties = (area(last) - area(first)) / (last - first).clamp(min=1)
    return pair.result((wrong.times * mean_over_ties).sum(dim=1, keepdim=True) / total)


def augrc(scores: Tensor | ScorePair, correct: Tensor | None = None) -> Value:
    """Return the area under the generalised risk-coverage curve: errors among the accepted / N (Traub et al., 2024).

    The curve runs straight between its points, and a group of equal scores is one straight piece. With the failure
    AUROC the area is (1 - AUROC_f) acc (1 - acc) + (1 - acc)^2 / 2: of N^2 pairs of samples, all of a right and a wrong
    prediction in the wrong order count, and half of those of two wrong ones.

    >>> augrc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True]))  # (1 + 1/2) / 4^2
    0.09375
    """
    pair = ScorePair.of_errors(scores, correct)
    right, wrong = pair.inside.total, pair.outside.total
    twice = 2 * right * wrong - pair.twice_won + wrong**2
    return pair.result(twice / (2 * (right + wrong) ** 2))


def failure_auroc(scores: Tensor | ScorePair, correct: Tensor | None = None) -> Value:
    """Return the AUROC of finding wrong predictions by large scores: P(wrong > right) + P(wrong = right) / 2.

    A resample without a right or a wrong prediction has none: it is NaN.

    >>> failure_auroc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True]))  # 2 of 3 pairs
    0.6666666666666666
    """
    pair = ScorePair.of_errors(scores, correct)
    right, wrong = len(pair.inside.values), len(pair.outside.values)
    if pair.inside.weights is None and not right * wrong:
        raise ValueError(f"correct must hold right and wrong predictions, got {right} right ones of {right + wrong}")
    return auroc(pair)


SELECTIVE: dict[str, Callable[..., Value]] = {"aurc": aurc, "augrc": augrc, "failure_auroc": failure_auroc}
