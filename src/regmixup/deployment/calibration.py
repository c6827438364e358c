"""Fit what turns logits into decisions: a temperature, a threshold, and label sets, on validation images.

A threshold accepts a share of the validation images or, by `risk`, as many images as it can while a promise holds: of
the images accepted later, at most the share `risk` are classified wrongly, with the stated confidence. One threshold is
tested exactly: if more than `risk` of what it accepts were wrong, then to see as few as k errors among n accepted
images would have at most the probability P(Binomial(n, risk) <= k). Trying many thresholds on the same images and
keeping the best one breaks that promise several times as often as stated. So the first part of the validation images,
which also fits the temperature, fixes a sequence of ever larger thresholds; the second part tests them in this order,
each at the full 1 - confidence, until the first one fails (fixed-sequence testing). Then the probability that any
threshold which passed is a wrong one is at most 1 - confidence.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from regmixup.config import check_choices, check_number
from regmixup.metrics.detection import needed_count
from regmixup.metrics.scores import SCORES
from regmixup.names import check_name
from regmixup.networks import plain_normalize
from regmixup.posthoc import Conformal, FittedConformal, TemperatureScaling
from regmixup.predictions.forward import pair_of
from regmixup.types import look_like_probabilities

if TYPE_CHECKING:
    from regmixup.deployment.export import Deployable
    from regmixup.networks.contract import Normalization

Inputs = Literal["pixels", "normalised", "as given"]
_MARGIN = 1e-4
_STEPS = 100


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

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor) -> Labelled:
        return Labelled(self.logits[rows], self.labels[rows])

    def errors(self) -> Tensor:
        """Return where the largest logit is not the label's, (N,)."""
        return self.logits.argmax(dim=1) != self.labels


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """The fitted values; see `Predictor` for the meaning of each."""

    temperature: float
    threshold: float
    limit: float | None = None
    promise: Promise | None = None
    sets: FittedConformal | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The settings of a fit; see `Predictor.fit` for the meaning of each."""

    score: str = "entropy"
    acceptance: float = 0.95
    risk: float | None = None
    confidence: float = 0.95
    sets: Conformal | None = None
    calibrate: bool = True
    criterion: Literal["ece", "nll"] = "ece"
    share: float = 0.5
    aside: bool = False

    def __post_init__(self) -> None:
        check_choices(self)
        check_name("score", self.score, SCORES)
        check_number("acceptance", self.acceptance, above=0, most=1)
        if self.risk is not None:
            check_number("risk", self.risk, above=0, below=1)
        check_number("confidence", self.confidence, above=0, below=1)
        check_number("share", self.share, above=0, below=1)
        if self.sets is not None and not isinstance(self.sets, Conformal):
            raise ValueError(f"sets must be a rm.posthoc.Conformal or None, got {self.sets!r}")

    def fit(self, validation: Labelled, held_out: Labelled | None = None) -> Calibrated:
        """Fit on logits. held_out: other images, for promises; default, `split` takes them from `validation`.

        Without a promise to keep, all of `validation` fits both the temperature and the threshold; with `aside`, the
        first part of it, and the second is not looked at.
        """
        promising = self.risk is not None or self.sets is not None
        if held_out is None and (promising or self.aside):
            validation, held_out = split(validation, self.share)
        temperature = self._temperature(validation) if self.calibrate else 1.0
        accepting = accepting_threshold(SCORES[self.score](validation.logits), self.acceptance)
        found = Calibrated(temperature=temperature, threshold=accepting)
        if held_out is not None and self.risk is not None:
            threshold, promise = self._keeping_risk(validation, held_out, self.risk)
            found = replace(found, threshold=threshold, limit=accepting, promise=promise)
        if held_out is not None and self.sets is not None:
            probs = (held_out.logits.double() / temperature).softmax(dim=1)
            sets = self.sets.fit_probs(probs, held_out.labels, generator=torch.Generator().manual_seed(0))
            found = replace(found, sets=sets)
        return found

    def _temperature(self, validation: Labelled) -> float:
        """Return the fitted temperature; 1 if no image is wrong, where the best one would make all answers certain."""
        if not bool(validation.errors().any()):
            warnings.warn(
                f"the temperature stays 1: each of the {len(validation)} validation images is right, which says "
                "nothing about how sure to be. Give more validation images",
                stacklevel=2,
            )
            return 1.0
        return TemperatureScaling(criterion=self.criterion).fit(validation.logits, validation.labels).temperature

    def _keeping_risk(self, first: Labelled, second: Labelled, risk: float) -> tuple[float, Promise]:
        """Return the largest threshold that passes, and what is promised; an error if none does."""
        scores = [SCORES[self.score](part.logits).double().cpu() for part in (first, second)]
        wrong = [part.errors().cpu() for part in (first, second)]
        sequence = threshold_sequence(scores[0], wrong[0], risk=risk, most=self.acceptance, images=len(second))
        accepted, errors = counts(sequence, scores[1], wrong[1])
        needed = fewest_images(risk, self.confidence)
        asked = f"At most {risk:.3g} errors among the accepted with {self.confidence:.3g} confidence"
        if int(accepted.max()) < needed:
            raise ValueError(
                f"risk: nothing can be promised. {asked} needs at least {needed} accepted images without an error, the "
                f"threshold was to be tested on {len(second)}, of which it accepts at most {int(accepted.max())}. Give "
                "more validation images, a larger risk or a lower confidence"
            )
        passed = passing(accepted, errors, risk=risk, confidence=self.confidence)
        if passed == 0:
            raise ValueError(
                f"risk: nothing can be promised. {asked} was not shown by any threshold: the first one tested had "
                f"{int(errors[0])} errors among {int(accepted[0])} accepted images. Give more validation images, a "
                "larger risk, a lower confidence, or a better model"
            )
        promise = Promise(
            risk=risk,
            confidence=self.confidence,
            accepted=int(accepted[passed - 1]),
            errors=int(errors[passed - 1]),
            images=len(second),
        )
        return float(sequence[passed - 1]), promise


@dataclass(frozen=True)
class Collected:
    """Logits and labels of a loader, the shape of an input, and the kind of all inputs by their values: `Facts`."""

    found: Labelled
    shape: tuple[int, ...]
    inputs: Inputs


@torch.no_grad()
def collect(module: Deployable, batches: Iterable[Any], name: str, normalize: Normalization | None) -> Collected:
    """Return the logits of batches (x, y). normalize: the module's, which must be for one channel or those of x."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    logits, labels, shapes, lowest, highest = [], [], set(), 0.0, 1.0
    for batch in batches:
        x, y = pair_of(batch, name)
        plain_normalize(normalize, *sorted({1, *x.shape[1:2]}))
        if x.is_floating_point():
            low, high = map(float, x.aminmax())
            lowest, highest = min(lowest, low), max(highest, high)
        shapes.add(tuple(x.shape[1:]))
        logits.append(module.logits(x.to(device)).cpu())
        if not bool(torch.isfinite(logits[-1]).all()):
            raise ValueError(f"the model must give finite logits for {name}, got NaN or infinite values")
        labels.append(y.cpu())
    if not logits or len(shapes) != 1:
        got = f"shapes {', '.join(map(str, sorted(shapes)))}" if shapes else "nothing"
        raise ValueError(f"{name} must give batches (x, y) of inputs of one shape, got {got}")
    found = Labelled(torch.cat(logits), torch.cat(labels))
    if found.logits.shape[1] > 1 and look_like_probabilities(found.logits):
        raise ValueError(
            f"the model must give logits for {name}, got numbers >= 0 that sum to 1: leave out its softmax"
        )
    inputs: Inputs = "normalised" if lowest < 0 and max(-lowest, highest) <= 20 else "as given"
    return Collected(found, shapes.pop(), "pixels" if lowest == 0 and highest == 1 else inputs)


def look_like_pixels(images: Tensor) -> bool:
    """Return whether floating-point inputs (N, C, H, W) are k or k / 255 beyond doubt, and so not normalised.

    Bright images less 128 / 255, or less a mean of whole levels from 104 on, are k / 255 up to 0.6, too.
    """
    low, high = map(float, images.aminmax())
    if images.ndim != 4 or low < 0:
        return False
    if not 0.6 < high <= 1:
        return high > 50
    levels = (255 * images).float()
    if float((levels - levels.round()).abs().max()) > 1e-3:
        return False
    seen = torch.bincount(levels.round().long().flatten(), minlength=256) > 0
    return int(seen[::2].sum()) > 4 and int(seen[1::2].sum()) > 4  # (x - 0.5) / 0.5 gives k / 255, too, of odd k alone


def split(images: Labelled, share: float = 0.5) -> tuple[Labelled, Labelled]:
    """Split images into two parts, the first of about `share` of them, by a permutation that N alone decides."""
    first = torch.zeros(len(images), dtype=torch.bool, device=images.labels.device)
    first[first_rows(len(images), share)] = True
    if bool(first.all()):
        raise ValueError(f"validation must have images for two parts, got {len(images)}: give more, or held_out")
    return images[first], images[~first]


def first_rows(count: int, share: float = 0.5) -> Tensor:
    """Return the rows of the first part of so many images, in order; see `split`."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return order[: needed_count(share, count)].sort().values


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
