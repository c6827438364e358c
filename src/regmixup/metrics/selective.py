"""Selective prediction: answer where the model is sure, abstain elsewhere. Scores are larger where it is less sure.

Samples with equal scores cannot be told apart, so they are accepted together. The areas are means over all orders of
the tied samples. Metrics take scores (N,) and whether each prediction was right (N,), or a `Selection` of both, which
may carry weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from regmixup.config import check_number
from regmixup.metrics.detection import check_flags, check_scores, check_vector
from regmixup.metrics.ordering import cumulative, positions, precise, take_columns
from regmixup.metrics.weights import Value, value_of, weight_rows


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
    scores, correct = _checked(scores, correct)
    levels, index = scores.unique(return_inverse=True)
    accepted = torch.bincount(index, minlength=len(levels)).cumsum(0)
    errors = torch.bincount(index[~correct], minlength=len(levels)).cumsum(0)
    return RiskCoverage(levels, precise(accepted) / len(scores), precise(errors) / accepted)


@dataclass(frozen=True)
class Selection:
    """Samples ordered by their scores, with what the areas below need of them.

    An error at rank r, from 1 by its score, adds sum_{i >= r} 1 / i to N AURC and 2N - 2r + 1 to 2 N^2 AUGRC. Errors at
    ranks a + 1 to t add F(t) - F(a), with F(t) = t (1 + H(N) - H(t)), H the harmonic numbers, and F(t) = t (2N - t). So
    neighbours in the order that are all errors need two values of F together, and an error among equal scores, not all
    of which are errors, adds the mean of F over its group, (F(t) - F(a)) / (t - a).

    order: (N,) of rising scores. starts, ends: where runs of errors start and end in it. tied: places of the errors
    that tie with right predictions; first, last: where their groups of equal scores start and end.
    weights: (N,) or (R, N), how often each sample counts, in the order given; None for once.
    """

    order: Tensor
    starts: Tensor
    ends: Tensor
    tied: Tensor
    first: Tensor
    last: Tensor
    weights: Tensor | None = None

    @classmethod
    def of(cls, scores: Tensor, correct: Tensor) -> Selection:
        """Order scores (N,) with right predictions (N,)."""
        scores, correct = _checked(scores, correct)
        ordered, order = scores.sort()
        right = correct[order]
        errors = (~right).nonzero().squeeze(1)
        first, last = positions(ordered, ordered[errors])
        right_before = torch.cat([right.new_zeros(1), right]).cumsum(0)
        ties = right_before[first] < right_before[last]
        alone = torch.zeros(len(scores) + 2, dtype=torch.int8, device=scores.device)
        alone[errors[~ties] + 1] = 1
        change = alone.diff()
        starts, ends = (change == 1).nonzero().squeeze(1), (change == -1).nonzero().squeeze(1)
        return cls(order, starts, ends, errors[ties], first[ties], last[ties])

    def weighted(self, weights: Tensor) -> Selection:
        """Return the same samples with weights (R, N)."""
        return replace(self, weights=weights)

    @cached_property
    def _times(self) -> Tensor:
        """(R, N) float64: the weights in the order of the scores."""
        rows = weight_rows(self.weights, len(self.order), self.order.device)
        return precise(take_columns(rows, self.order))

    @cached_property
    def _ranks(self) -> tuple[Tensor, ...]:
        """Return the weight before every start, end, first and last, (R, M) each."""
        accepted = cumulative(self._times)
        return tuple(take_columns(accepted, places) for places in (self.starts, self.ends, self.first, self.last))

    @cached_property
    def total(self) -> Tensor:
        """(R,): the weight of all samples, N in a resample."""
        return self._times.sum(dim=1)

    @cached_property
    def errors(self) -> Tensor:
        """(R,): the weight of the errors."""
        starts, ends, _, _ = self._ranks
        return (ends - starts).sum(dim=1) + take_columns(self._times, self.tied).sum(dim=1)

    @cached_property
    def harmonic_sum(self) -> Tensor:
        """(R,): N AURC."""
        whole = precise(torch.arange(1, int(self.total.max()) + 1, device=self.total.device))
        harmonic = torch.cat([whole.new_zeros(1), whole.reciprocal().cumsum(0)])
        most = harmonic[self.total.long()][:, None]

        def area(rank: Tensor) -> Tensor:
            # index_select is ten times as fast as harmonic[rank].
            return rank * (1 + most - harmonic.index_select(0, rank.long().flatten()).view(rank.shape))

        return self._sum([area(rank) for rank in self._ranks])

    @cached_property
    def rank_sum(self) -> Tensor:
        """(R,): 2 N^2 AUGRC, a whole number."""
        return self._sum([rank * (2 * self.total[:, None] - rank) for rank in self._ranks])

    def _sum(self, areas: Sequence[Tensor]) -> Tensor:
        """Return the sum over errors; areas: F of the ranks."""
        starts, ends, first, last = areas
        size = (self._ranks[3] - self._ranks[2]).clamp(min=1)
        tied = take_columns(self._times, self.tied) * ((last - first) / size)
        return (ends - starts).sum(dim=1) + tied.sum(dim=1)

    def value(self, values: Tensor) -> Value:
        """Return values (R,) as the result of a metric."""
        return value_of(values, self.weights)


def _selection(scores: Tensor | Selection, correct: Tensor | None) -> Selection:
    if isinstance(scores, Selection):
        return scores
    if correct is None:
        raise ValueError("correct must be given beside scores, got None")
    return Selection.of(scores, correct)


def aurc(scores: Tensor | Selection, correct: Tensor | None = None) -> Value:
    """Return the area under the risk-coverage curve: 1/N sum_i risk of the i surest samples (Geifman et al., 2019).

    >>> round(aurc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True])), 6)  # (1/3 + 1/4) / 4
    0.145833
    """
    selection = _selection(scores, correct)
    return selection.value(selection.harmonic_sum / selection.total)


def augrc(scores: Tensor | Selection, correct: Tensor | None = None) -> Value:
    """Return the area under the generalised risk-coverage curve: errors among the accepted / N (Traub et al., 2024).

    The curve runs straight between its points, and a group of equal scores is one straight piece. An error adds 1 / N
    from where it is accepted up to full coverage, so with a samples below it and t below or tied,
    AUGRC = sum over errors of (2N - a - t) / (2 N^2). With the failure AUROC it is
    (1 - AUROC_f) acc (1 - acc) + (1 - acc)^2 / 2.

    >>> augrc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True]))  # (8 - 2 - 3) / 32
    0.09375
    """
    selection = _selection(scores, correct)
    return selection.value(selection.rank_sum / (2 * selection.total**2))


def failure_auroc(scores: Tensor | Selection, correct: Tensor | None = None) -> Value:
    """Return the AUROC of finding wrong predictions by large scores: P(wrong > right) + P(wrong = right) / 2.

    It follows from AUGRC, see there. A resample without a right or a wrong prediction has none: it is NaN.

    >>> failure_auroc(torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([True, True, False, True]))  # 2 of 3 pairs
    0.6666666666666666
    """
    selection = _selection(scores, correct)
    errors, total = selection.errors, selection.total
    if selection.weights is None and not 0 < float(errors) < float(total):
        right, count = int(total - errors), int(total)
        raise ValueError(f"correct must hold right and wrong predictions, got {right} right ones of {count}")
    pairs = 2 * errors * (total - errors)
    return selection.value((pairs - selection.rank_sum + errors**2) / pairs)


def eaurc(scores: Tensor, correct: Tensor) -> float:
    """Return the AURC minus that of the best order, all right predictions before all errors (Geifman et al., 2019)."""
    scores, correct = _checked(scores, correct)
    return float(aurc(scores, correct) - aurc((~correct).double(), correct))


def scod_aurc(id_scores: Tensor, correct: Tensor, ood_scores: Tensor) -> float:
    """Return the AURC of all samples together, where an accepted out-of-distribution sample is an error.

    Selective classification with OOD samples present (SCOD), at the mixture given: N in- and M out-of-distribution
    samples. id_scores, correct: (N,); ood_scores: (M,).

    >>> area = scod_aurc(torch.tensor([0.1, 0.3]), torch.tensor([True, True]), torch.tensor([0.2]))
    >>> round(area, 6)  # (1/2 + 1/3) / 3
    0.277778
    """
    return float(aurc(*join_ood(id_scores, correct, ood_scores)))


def scod_augrc(id_scores: Tensor, correct: Tensor, ood_scores: Tensor) -> float:
    """Return the AUGRC of what `scod_aurc` describes."""
    return float(augrc(*join_ood(id_scores, correct, ood_scores)))


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


def _checked(scores: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    scores = check_vector("scores", scores)
    return scores, check_flags("correct", correct, len(scores))
