"""Fit what turns logits into decisions: a temperature, a threshold, and label sets, on validation images.

A threshold accepts a share of the validation images or, by `risk`, as many images as it can while a promise holds: of
the images accepted later, at most the share `risk` are classified wrongly, with the stated confidence. One threshold is
tested exactly: if more than `risk` of what it accepts were wrong, then to see as few as k errors among n accepted
images would have at most the probability P(Binomial(n, risk) <= k). Trying many thresholds on the same images and
keeping the best one breaks that promise several times as often as stated. So the first half of the validation images,
which also fits the temperature, fixes a sequence of ever larger thresholds; the second half tests them in this order,
each at the full 1 - confidence, until the first one fails (fixed-sequence testing). Then the probability that any
threshold which passed is a wrong one is at most 1 - confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regmixup.config import InnerShare, PositiveShare, check_fields
from regmixup.metrics.detection import auroc, needed_count
from regmixup.metrics.scores import SCORES
from regmixup.names import check_name, warn_user
from regmixup.posthoc import Conformal, FittedConformal
from regmixup.posthoc.temperature import check_logits
from regmixup.types import Predictions

AUTO, MSP = "auto", "max_probability"
PRIOR = 0.2
"""The standard deviation of log T before any image is seen; see `fit_temperature`.

Chosen once, on archived CIFAR-10 logits of plain training and of RegMixup (`python benchmarks/temperature.py`). With
5,000 validation images it changes the test NLL by at most 0.0001. With 60, over 1,000 subsamples, the mean test NLL
falls from 0.222 to 0.156 and from 0.229 to 0.132, its 95th percentile from 0.87 to 0.17 and from 0.97 to 0.14. T then
lies within 0.88 and 1.43 in 95 % of them; without the prior it is 0.1, the least, whenever all 60 images are right.
"""
_MARGIN = 1e-4
_STEPS = 100


class NoPromiseError(ValueError):
    """The validation images do not show the risk that was asked for."""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """Promise that at most the share `risk` of accepted images is classified wrongly, with probability `confidence`.

    accepted, errors: at this threshold, among the `images` that tested it and fitted nothing else.
    """

    risk: float
    confidence: float
    accepted: int
    errors: int
    images: int

    def __str__(self) -> str:
        return f"at most {self.risk:.3g} errors among the accepted, with {self.confidence:.3g} confidence"


@dataclass(frozen=True, kw_only=True)
class ScoreChoice:
    """The choice of `score="auto"`: the AUROC of each score, `images` validation images against `ood_images` others.

    aurocs: in the order of the registry; empty without OOD images.
    """

    aurocs: dict[str, float]
    images: int
    ood_images: int

    @property
    def name(self) -> str:
        """The score of the largest AUROC, the earlier one of equals; MSP without OOD images."""
        return max(self.aurocs, key=self.aurocs.__getitem__, default=MSP)

    def __str__(self) -> str:
        if not self.aurocs:
            return f"{MSP} (MSP): no out-of-distribution validation images were given to choose by"
        ranked = sorted(self.aurocs, key=self.aurocs.__getitem__, reverse=True)
        shown = ", ".join(f"{name} {100 * self.aurocs[name]:.1f}" for name in ranked)
        return (
            f"{self.name}, of the largest AUROC of {self.images} validation images against {self.ood_images} "
            f"out-of-distribution ones (%: {shown})"
        )


def choose_score(logits: Tensor, ood_logits: Tensor | None) -> ScoreChoice:
    """Choose among the scores of logits, which a predictor and its exports can compute. No test image has a part in it.

    logits: (N, K) of validation images. ood_logits: (M, K) of OOD validation images.

    >>> choice = choose_score(torch.tensor([[9.0, 8.0, 8.0], [5.0, 0.0, 0.0]]), torch.tensor([[4.0, 0.0, 0.0]]))
    >>> choice.name, choice.aurocs["entropy"]
    ('dempster_shafer', 0.5)
    """
    if ood_logits is None:
        return ScoreChoice(aurocs={}, images=len(logits), ood_images=0)
    aurocs = {name: float(auroc(score(logits), score(ood_logits))) for name, score in SCORES.items()}
    return ScoreChoice(aurocs=aurocs, images=len(logits), ood_images=len(ood_logits))


def misclassified(predictions: Predictions) -> Tensor:
    """Return where the largest logit is not the label's, (N,)."""
    return predictions.logits.argmax(dim=1) != predictions.labels


def halves(predictions: Predictions) -> tuple[Predictions, Predictions]:
    """Return logits, labels and features in two halves, by a permutation that the number of images alone decides."""
    order = torch.randperm(len(predictions), generator=torch.Generator().manual_seed(0))
    size = needed_count(0.5, len(predictions))

    def select(rows: Tensor) -> Predictions:
        features = predictions.features[rows] if predictions.features is not None else None
        return Predictions(predictions.logits[rows], predictions.labels[rows], features=features)

    return select(order[:size].sort().values), select(order[size:].sort().values)


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """The fitted values and what they were fitted for; see `Predictor` for the meaning of each."""

    score: str
    acceptance: float
    temperature: float
    threshold: float
    images: int
    errors: int
    promise: Promise | None = None
    sets: FittedConformal | None = None
    choice: ScoreChoice | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The settings of a fit on validation images.

    score: how unsure the model is, one of `metrics.scores.SCORES`; or "auto", the one that tells OOD validation images
        best from validation images, by AUROC. Without OOD images that is MSP, and a warning says so.
    acceptance: the share of the images to accept, with `risk` at most; the threshold is the smallest that does.
    risk: accept as many images as possible while at most this share of the accepted is classified wrongly, with the
        probability `confidence`. An error says if nothing can be promised.
    sets: a `rm.posthoc.Conformal`, for label sets. Risk and sets are tested on half of the images, which have no part
        in anything else; nor may they have chosen the model.
    """

    score: str = "entropy"
    acceptance: PositiveShare = 0.95
    risk: InnerShare | None = None
    confidence: InnerShare = 0.95
    sets: Conformal | None = None

    def __post_init__(self) -> None:
        check_name("score", self.score, [*SCORES, AUTO])
        check_fields(self)
        if self.risk is None and self.confidence != Calibration.confidence:
            raise ValueError(f"confidence must be {Calibration.confidence} without risk, got {self.confidence}")
        if not isinstance(self.sets, Conformal | None):
            raise ValueError(f'sets must be None or such as rm.posthoc.Conformal(method="lac"), got {self.sets!r}')

    def fit(self, validation: Predictions, ood_logits: Tensor | None = None) -> Calibrated:
        """Fit on logits. A promise and label sets take the second half of the images, all else the first.

        Without either, all images fit both the temperature and the threshold.
        ood_logits: (M, K) of OOD validation images, which choose the score "auto" and have no part in anything else.
        """
        check_logits(validation.logits, validation.labels)
        first, second = validation, validation
        if self.risk is not None or self.sets is not None:
            if len(validation) < 2:
                raise NoPromiseError(f"risk and sets need 2 validation images or more, got {len(validation)}")
            first, second = halves(validation)
        choice, score = None, self.score
        if score == AUTO:
            choice = choose_score(first.logits, ood_logits)
            score = choice.name
            if ood_logits is None:
                warn_user(f'score="auto" is {choice} (ood)')
        elif ood_logits is not None:
            raise ValueError(f'ood must be left out unless score is "auto", which it chooses, got score {score!r}')
        fitted = Calibrated(
            score=score,
            acceptance=self.acceptance,
            temperature=fit_temperature(first),
            threshold=float(accepting_thresholds(SCORES[score](first.logits), [self.acceptance])[0]),
            images=len(first),
            errors=int(misclassified(first).sum()),
            choice=choice,
        )
        if self.risk is not None:
            threshold, promise = self._keep_risk(score, first, second, self.risk)
            fitted = replace(fitted, threshold=threshold, promise=promise)
        if self.sets is not None:
            probs = (second.logits.double() / fitted.temperature).softmax(dim=1)
            fitted = replace(fitted, sets=self.sets.fit_probs(probs, second.labels))
        return fitted

    def _keep_risk(self, score: str, first: Predictions, second: Predictions, risk: float) -> tuple[float, Promise]:
        """Return the largest threshold that passes, and what is promised; an error if none does."""
        scores, other_scores = (SCORES[score](part.logits).double() for part in (first, second))
        sequence = threshold_sequence(scores, misclassified(first), risk=risk, most=self.acceptance, images=len(second))
        accepted, errors = count_accepted(sequence, other_scores, misclassified(second))
        passed = count_passing(accepted, errors, risk=risk, confidence=self.confidence)
        if passed == 0:
            raise NoPromiseError(
                f"risk: nothing can be promised. At most {risk:.3g} errors among the accepted with "
                f"{self.confidence:.3g} confidence needs at least {fewest_images(risk, self.confidence)} accepted "
                f"images without an error; of the {len(second)} images that test it, the first threshold accepts "
                f"{int(accepted[0])}, {int(errors[0])} of them wrong. Give more validation images, a larger risk, a "
                "lower confidence, or a better model"
            )
        last = passed - 1
        return float(sequence[last]), Promise(
            risk=risk,
            confidence=self.confidence,
            accepted=int(accepted[last]),
            errors=int(errors[last]),
            images=len(second),
        )


def fit_temperature(validation: Predictions, *, prior: float = PRIOR) -> float:
    """Return T within 0.1 and 10 that minimises sum_i NLL(softmax(logits_i / T), y_i) + (log T)^2 / (2 prior^2).

    The second term is a normal prior of log T around 0. Few images, or images without an error, say little about how
    sure to be, and leave T near 1; thousands outweigh it. `evaluate` and the tables of studies have another T, of the
    smallest ECE, to compare with the paper's: `posthoc.temperature.TemperatureScaling.fit`.

    >>> logits = torch.tensor([[2.0, 0.0]] * 10)
    >>> labels = torch.tensor([0] * 7 + [1] * 3)
    >>> round(fit_temperature(Predictions(logits, labels)), 2)  # without the prior it were 2 / log(7 / 3) = 2.36
    1.12
    """
    from scipy.optimize import minimize_scalar

    logits, labels = check_logits(validation.logits.double(), validation.labels)

    def loss(log_temperature: float) -> float:
        nll = F.cross_entropy(logits * math.exp(-log_temperature), labels, reduction="sum")
        return float(nll) + log_temperature**2 / (2 * prior**2)

    optimum = minimize_scalar(loss, bounds=(math.log(0.1), math.log(10)), method="bounded")
    return math.exp(float(optimum.x))


def accepting_thresholds(scores: Tensor, acceptances: Sequence[float]) -> Tensor:
    """Return the smallest thresholds t such that score <= t for at least these shares of the scores (N,), float64.

    One lies a little above the last accepted score, by 1e-4 of it, or half-way to the first unsure one if that is
    nearer: the same scores, rounded otherwise by another batch size, device or runtime, should get the same decisions.

    >>> accepting_thresholds(torch.tensor([0.5, 0.25, 1.0, 2.0]), [0.75])
    tensor([1.0001], dtype=torch.float64)
    """
    ordered = scores.double().sort().values
    last = ordered[[needed_count(acceptance, len(ordered)) - 1 for acceptance in acceptances]]
    after = torch.searchsorted(ordered, last, right=True)
    gap = torch.cat([ordered, ordered.new_tensor([math.inf])])[after] - last
    return last + torch.minimum(_MARGIN * last.abs(), gap / 2)


def fewest_images(risk: float, confidence: float) -> int:
    """Return how many accepted images, all right, show the risk: the smallest n with (1 - risk)^n <= 1 - confidence.

    >>> fewest_images(0.02, 0.95), fewest_images(0.05, 0.9)
    (149, 45)
    """
    return math.ceil(math.log1p(-confidence) / math.log1p(-risk) - 1e-9)


def threshold_sequence(scores: Tensor, wrong: Tensor, *, risk: float, most: float, images: int) -> Tensor:
    """Return thresholds in the order in which to test them on `images` other images, from scores and errors (N,).

    They rise from the one that would pass by the widest margin if the others were like these, to the one that accepts
    the share `most` here, in steps of a hundredth of `most`.
    """
    sequence = accepting_thresholds(scores, [most * step / _STEPS for step in range(1, _STEPS + 1)]).unique()
    accepted, errors = count_accepted(sequence, scores, wrong)
    scale = images / len(scores)
    expected = binomial_tail((errors * scale).round().long(), (accepted * scale).round().long(), risk)
    return sequence[int(expected.argmin()) :]


def count_accepted(thresholds: Tensor, scores: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many scores each threshold (T,) accepts, and how many of these are wrong."""
    ordered, order = scores.sort()
    errors = torch.cat([wrong.new_zeros(1, dtype=torch.long), wrong[order].cumsum(0)])
    accepted = torch.searchsorted(ordered, thresholds.to(ordered), right=True)
    return accepted, errors[accepted]


def count_passing(accepted: Tensor, errors: Tensor, *, risk: float, confidence: float) -> int:
    """Return how many thresholds pass one after the other, before the first that fails."""
    passed = binomial_tail(errors, accepted, risk) <= 1 - confidence + 1e-12
    return int(passed.long().cumprod(0).sum())


def binomial_tail(errors: Tensor, accepted: Tensor, risk: float) -> Tensor:
    """Return P(Binomial(accepted, risk) <= errors), exactly, in float64; 1 where nothing is accepted.

    >>> binomial_tail(torch.tensor([0, 0, 1]), torch.tensor([148, 149, 149]), 0.02)
    tensor([0.0503, 0.0493, 0.1991], dtype=torch.float64)
    """
    from scipy.special import bdtr

    return torch.from_numpy(bdtr(errors.numpy().astype(float), accepted.numpy(), risk))
