"""Selective prediction: answer where the model is sure, abstain elsewhere. Scores are larger where it is less sure.

Samples with equal scores cannot be told apart, so they are accepted together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.bootstrap import Counts
from regmixup.metrics.detection import auroc, check_flags, check_scores, check_vector
from regmixup.metrics.ordering import cumulative, positions, precise, sorted_values, take_columns


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
    levels, size, errors = _levels(scores, correct)
    accepted = size.cumsum(0)
    return RiskCoverage(levels, precise(accepted) / int(accepted[-1]), precise(errors.cumsum(0)) / accepted)


def aurc(scores: Tensor, correct: Tensor) -> float:
    """Return the area under the risk-coverage curve: 1/N sum_i risk of the i surest samples (Geifman et al., 2019).

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


def augrc(scores: Tensor, correct: Tensor) -> float:
    """Return the area under the generalised risk-coverage curve: errors among the accepted / N (Traub et al., 2024).

    The curve runs straight between its points, and a group of equal scores is one straight piece: the mean over all
    orders of the tied samples. An error adds 1 / N from where it is accepted up to full coverage, so with a samples
    below it and t below or tied, AUGRC = sum over errors of (2N - a - t) / (2 N^2). With the failure AUROC it is
    (1 - AUROC_f) acc (1 - acc) + (1 - acc)^2 / 2.

    >>> augrc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True]))  # (8 - 2 - 3) / 32
    0.09375
    """
    scores, correct = _checked(scores, correct)
    below, below_or_tied = positions(sorted_values(scores), sorted_values(scores[~correct]))
    return int((2 * len(scores) - below - below_or_tied).sum()) / (2 * len(scores) ** 2)


def failure_auroc(scores: Tensor, correct: Tensor) -> float:
    """Return the AUROC of finding wrong predictions by large scores: P(wrong > right) + P(wrong = right) / 2.

    >>> failure_auroc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True]))  # 2 of 3 pairs
    0.6666666666666666
    """
    scores, correct = _checked(scores, correct)
    if correct.all() or not correct.any():
        raise ValueError(
            f"correct must hold right and wrong predictions, got {int(correct.sum())} right ones of {len(correct)}"
        )
    return auroc(scores[correct], scores[~correct])


SELECTIVE = {"aurc": aurc, "augrc": augrc, "failure_auroc": failure_auroc}
"""By name, of scores (N,) and whether each prediction was right (N,)."""


def resample_selective(scores: Tensor, correct: Tensor, counts: Counts) -> dict[str, Tensor]:
    """Return each of `SELECTIVE` on every resample, (R,) by name. counts: of the N samples.

    All three are sums over errors. An error at rank r adds sum_{i >= r} 1 / i to N AURC and 2N - 2r + 1 to 2 N^2 AUGRC;
    those at ranks a + 1 to t add F(t) - F(a), with F(t) = t (1 + H(N) - H(t)), H the harmonic numbers, and
    F(t) = t (2N - t). So neighbours in the order that are all errors need two values of F together, and an error among
    equal scores, not all of which are errors, adds the mean of F over its group, (F(t) - F(a)) / (t - a). Failure AUROC
    follows from AUGRC, see there; it is NaN where a resample has no right or no wrong prediction.
    """
    scores, correct = _checked(scores, correct)
    total = len(scores)
    counts.check("counts", "scores", total)
    order, starts, ends, mixed, groups = _runs_of_errors(scores, correct)
    ranks = precise(torch.arange(total + 1, device=scores.device))
    harmonic = ranks[1:].reciprocal().cumsum(0)
    areas = ranks.clone(), ranks * (2 * total - ranks)
    areas[0][1:] *= 1 + harmonic[-1] - harmonic
    found = []
    for chunk in counts.chunks(scores.device):
        drawn = take_columns(chunk, order)
        accepted, own = cumulative(drawn, torch.int32), precise(take_columns(drawn, mixed))
        before, upto = (take_columns(accepted, side) for side in groups)
        start, end = take_columns(accepted, starts), take_columns(accepted, ends)
        share = own / (upto - before).clamp(min=1)
        errors = precise((end - start).sum(dim=1)) + own.sum(dim=1)
        sums = [
            _between(area, start, end).sum(dim=1) + (share * _between(area, before, upto)).sum(dim=1) for area in areas
        ]
        pairs = 2 * errors * (total - errors)
        failure = (pairs - sums[1] + errors**2) / pairs
        found.append(torch.stack([sums[0] / total, sums[1] / (2 * total**2), failure]))
    return dict(zip(SELECTIVE, torch.cat(found, dim=1), strict=True))


def _between(area: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Return F(end) - F(start), F being `area`; index_select is ten times as fast as area[end]."""
    below, upto = (area.index_select(0, side.flatten()).view(side.shape) for side in (start, end))
    return upto.sub_(below)


def _runs_of_errors(scores: Tensor, correct: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Return the order of rising scores; where runs of errors start and end in it; and the other errors.

    Those are the errors that tie with right predictions, with where their groups of equal scores start and end.
    """
    ordered, order = scores.sort()
    right = correct[order]
    places = (~right).nonzero().squeeze(1)
    first, last = positions(ordered, ordered[places])
    right_before = torch.cat([right.new_zeros(1), right]).cumsum(0)
    ties = right_before[first] < right_before[last]
    alone = torch.zeros(len(scores) + 2, dtype=torch.int8, device=scores.device)
    alone[places[~ties] + 1] = 1
    change = alone.diff()
    starts, ends = (change == 1).nonzero().squeeze(1), (change == -1).nonzero().squeeze(1)
    return order, starts, ends, places[ties], (first[ties], last[ties])


def eaurc(scores: Tensor, correct: Tensor) -> float:
    """Return the AURC minus that of the best order, all right predictions before all errors (Geifman et al., 2019)."""
    wrong = ~_checked(scores, correct)[1]
    return aurc(scores, correct) - aurc(wrong.long(), ~wrong) if wrong.any() else 0.0


def scod_aurc(id_scores: Tensor, correct: Tensor, ood_scores: Tensor) -> float:
    """Return the AURC of all samples together, where an accepted out-of-distribution sample is an error.

    Selective classification with OOD samples present (SCOD), at the mixture given: N in- and M out-of-distribution
    samples. id_scores, correct: (N,); ood_scores: (M,).

    >>> found = scod_aurc(torch.tensor([0.1, 0.3]), torch.tensor([True, True]), torch.tensor([0.2]))
    >>> round(found, 6)  # (1/2 + 1/3) / 3
    0.277778
    """
    return aurc(*join_ood(id_scores, correct, ood_scores))


def scod_augrc(id_scores: Tensor, correct: Tensor, ood_scores: Tensor) -> float:
    """Return the AUGRC of what `scod_aurc` describes."""
    return augrc(*join_ood(id_scores, correct, ood_scores))


def join_ood(id_scores: Tensor, correct: Tensor, ood_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores and `correct`, (N + M,), of both sets in this order; no out-of-distribution sample is right."""
    _checked(id_scores, correct)
    scores = check_scores(id_scores, ood_scores)
    return torch.cat(scores), torch.cat([correct, correct.new_zeros(len(ood_scores))])


def coverage_at_risk(scores: Tensor, correct: Tensor, *, risk: float) -> float:
    """Return the largest coverage at which some threshold keeps the risk at or below `risk`; 0 if none does.

    >>> coverage_at_risk(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True]), risk=0.25)
    1.0
    """
    check_number("risk", risk, least=0, most=1)
    curve = risk_coverage(scores, correct)
    # risk is a fraction such as 0.05 while errors / accepted is rounded: 1e-12 lets 5 of 100 pass.
    kept = curve.coverage[curve.risk <= risk + 1e-12]
    return float(kept[-1]) if len(kept) else 0.0


def _levels(scores: Tensor, correct: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct scores, rising, with the numbers of samples and of errors at each."""
    scores, correct = _checked(scores, correct)
    levels, index = scores.unique(return_inverse=True)
    size = torch.bincount(index, minlength=len(levels))
    return levels, size, torch.bincount(index[~correct], minlength=len(levels))


def _checked(scores: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    scores = check_vector("scores", scores)
    return scores, check_flags("correct", correct, len(scores))
