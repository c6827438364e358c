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

from regmixup.config import check_number
from regmixup.metrics.detection import needed_count
from regmixup.metrics.scores import SCORES
from regmixup.names import check_name
from regmixup.posthoc import Conformal, FittedConformal
from regmixup.posthoc.temperature import check_logits

CONFIDENCE = 0.95
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
    """Of the accepted images at most the share `risk` is classified wrongly, with probability `confidence`.

    accepted, errors: at this threshold, among the `images` that tested it and fitted nothing else.
    """

    risk: float
    confidence: float
    accepted: int
    errors: int
    images: int

    def __str__(self) -> str:
        return f"at most {self.risk:.3g} errors among the accepted, with {self.confidence:.3g} confidence"


@dataclass(frozen=True)
class Labelled:
    """Logits (N, K) of images and their labels (N,)."""

    logits: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        check_logits(self.logits, self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor) -> Labelled:
        return Labelled(self.logits[rows], self.labels[rows])

    def wrong(self) -> Tensor:
        """Return where the largest logit is not the label's, (N,)."""
        return self.logits.argmax(dim=1) != self.labels


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """The fitted values; see `Predictor` for the meaning of each."""

    temperature: float
    threshold: float
    images: int
    errors: int
    promise: Promise | None = None
    sets: FittedConformal | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The settings of a fit; see `Predictor.fit` for the meaning of each."""

    score: str = "entropy"
    acceptance: float = 0.95
    risk: float | None = None
    confidence: float = CONFIDENCE
    sets: Conformal | None = None
    calibrate: bool = True

    def __post_init__(self) -> None:
        check_name("score", self.score, SCORES)
        check_number("acceptance", self.acceptance, above=0, most=1)
        if self.risk is not None:
            check_number("risk", self.risk, above=0, below=1)
        check_number("confidence", self.confidence, above=0, below=1)
        if self.sets is not None and not isinstance(self.sets, Conformal):
            raise ValueError(f"sets must be a rm.posthoc.Conformal or None, got {self.sets!r}")

    def fit(self, validation: Labelled, held_out: Labelled | None = None) -> Calibrated:
        """Fit on logits. held_out: other images, for promises; default, `split` takes them from `validation`.

        Without a promise to keep, all of `validation` fits both the temperature and the threshold.
        """
        if held_out is None and (self.risk is not None or self.sets is not None):
            validation, held_out = split(validation)
        fitted = Calibrated(
            temperature=fit_temperature(validation) if self.calibrate else 1.0,
            threshold=accepting_threshold(SCORES[self.score](validation.logits), self.acceptance),
            images=len(validation),
            errors=int(validation.wrong().sum()),
        )
        if held_out is not None and self.risk is not None:
            threshold, promise = self._keep_risk(validation, held_out, self.risk)
            fitted = replace(fitted, threshold=threshold, promise=promise)
        if held_out is not None and self.sets is not None:
            probs = (held_out.logits.double() / fitted.temperature).softmax(dim=1)
            sets = self.sets.fit_probs(probs, held_out.labels)
            fitted = replace(fitted, sets=sets)
        return fitted

    def _keep_risk(self, first: Labelled, second: Labelled, risk: float) -> tuple[float, Promise]:
        """Return the largest threshold that passes, and what is promised; an error if none does."""
        scores, other_scores = (SCORES[self.score](part.logits).double().cpu() for part in (first, second))
        wrong, other_wrong = first.wrong().cpu(), second.wrong().cpu()
        sequence = threshold_sequence(scores, wrong, risk=risk, most=self.acceptance, images=len(second))
        accepted, errors = counts(sequence, other_scores, other_wrong)
        passed = passing(accepted, errors, risk=risk, confidence=self.confidence)
        if passed == 0:
            raise NoPromiseError(
                f"risk: nothing can be promised. At most {risk:.3g} errors among the accepted with "
                f"{self.confidence:.3g} confidence needs at least {fewest_images(risk, self.confidence)} accepted "
                f"images without an error; of the {len(second)} images that test it, the first threshold accepts "
                f"{int(accepted[0])}, {int(errors[0])} of them wrong. Give more validation images, a larger risk, a "
                "lower confidence, or a better model"
            )
        promise = Promise(
            risk=risk,
            confidence=self.confidence,
            accepted=int(accepted[passed - 1]),
            errors=int(errors[passed - 1]),
            images=len(second),
        )
        return float(sequence[passed - 1]), promise


def fit_temperature(validation: Labelled, *, prior: float = PRIOR) -> float:
    """Return T within 0.1 and 10 that minimises sum_i NLL(softmax(logits_i / T), y_i) + (log T)^2 / (2 prior^2).

    The second term is a normal prior of log T around 0. Few images, or images without an error, say little about how
    sure to be, and leave T near 1; thousands outweigh it.

    >>> logits = torch.tensor([[2.0, 0.0]] * 10)
    >>> labels = torch.tensor([0] * 7 + [1] * 3)
    >>> round(fit_temperature(Labelled(logits, labels)), 2)  # without the prior it were 2 / log(7 / 3) = 2.36
    1.12
    """
    from scipy.optimize import minimize_scalar

    logits = validation.logits.double()

    def loss(log_temperature: float) -> float:
        nll = F.cross_entropy(logits * math.exp(-log_temperature), validation.labels.long(), reduction="sum")
        return float(nll) + log_temperature**2 / (2 * prior**2)

    optimum = minimize_scalar(loss, bounds=(math.log(0.1), math.log(10)), method="bounded")
    return math.exp(float(optimum.x))


def split(images: Labelled) -> tuple[Labelled, Labelled]:
    """Divide images into two halves, by a permutation that their number alone decides."""
    if len(images) < 2:
        raise ValueError(f"validation must have images for two parts, got {len(images)}: give more, or held_out")
    first = torch.zeros(len(images), dtype=torch.bool)
    first[first_rows(len(images))] = True
    return images[first], images[~first]


def first_rows(count: int) -> Tensor:
    """Return the rows of the first half of so many images, in order; see `split`."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return order[: needed_count(0.5, count)].sort().values


def accepting_threshold(scores: Tensor, acceptance: float) -> float:
    """Return the smallest threshold t such that score <= t for at least the share `acceptance` of the scores (N,).

    It lies a little above the last accepted score, by 1e-4 of it, or half-way to the first rejected one if that is
    nearer: the same scores, rounded otherwise by another batch size, device or runtime, should get the same decisions.

    >>> accepting_threshold(torch.tensor([0.5, 0.25, 1.0, 2.0]), 0.75)
    1.0001
    """
    return float(accepting_thresholds(scores, [acceptance])[0])


def accepting_thresholds(scores: Tensor, acceptances: Sequence[float]) -> Tensor:
    """Return `accepting_threshold` for several shares, float64."""
    ordered = scores.double().cpu().sort().values
    last = ordered[[needed_count(acceptance, len(ordered)) - 1 for acceptance in acceptances]]
    margin = _MARGIN * last.abs()
    after = torch.searchsorted(ordered, last, right=True)
    gap = torch.cat([ordered, ordered.new_tensor([math.inf])])[after] - last
    return last + torch.minimum(margin, gap / 2)


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
    accepted, errors = counts(sequence, scores, wrong)
    scale = images / len(scores)
    expected = tail((errors * scale).round().long(), (accepted * scale).round().long(), risk)
    return sequence[int(expected.argmin()) :]


def counts(thresholds: Tensor, scores: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many scores each threshold (T,) accepts, and how many of these are wrong."""
    ordered, order = scores.sort()
    errors = torch.cat([wrong.new_zeros(1, dtype=torch.long), wrong[order].cumsum(0)])
    accepted = torch.searchsorted(ordered, thresholds.to(ordered), right=True)
    return accepted, errors[accepted]


def passing(accepted: Tensor, errors: Tensor, *, risk: float, confidence: float) -> int:
    """Return how many thresholds pass one after the other, before the first that fails."""
    passed = tail(errors, accepted, risk) <= 1 - confidence + 1e-12
    return int(passed.long().cumprod(0).sum())


def tail(errors: Tensor, accepted: Tensor, risk: float) -> Tensor:
    """Return P(Binomial(accepted, risk) <= errors), exactly, in float64; 1 where nothing is accepted.

    >>> tail(torch.tensor([0, 0, 1]), torch.tensor([148, 149, 149]), 0.02)
    tensor([0.0503, 0.0493, 0.1991], dtype=torch.float64)
    """
    from scipy.special import bdtr

    return torch.from_numpy(bdtr(errors.numpy().astype(float), accepted.numpy(), risk))
