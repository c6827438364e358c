"""Conformal label sets: sets of classes that hold the true one with a stated probability (Vovk et al., 2005).

The promise is marginal, over new images and calibration images together, and holds for any model, as long as both are
drawn from the same distribution; nothing is promised under shift, or for a single class. Calibration images must have
had no part in training the model or in fitting a temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regmixup.config import Checked, CountOrZero, InnerShare, NotNegative
from regmixup.metrics.detection import needed_count
from regmixup.metrics.pieces import pieces_of, precise
from regmixup.names import warn_user
from regmixup.posthoc.temperature import check_logits
from regmixup.types import check_probs, refuse_probs

_PIECE = 2**22


@dataclass(frozen=True, kw_only=True)
class Conformal(Checked):
    """A set holds every class whose score s(x, k) is at most a quantile q of the scores of the true classes.

    method, with p the probabilities and r_k = 1, 2, ... the rank of class k among them, the most probable first:
        "lac"   s = 1 - p_k; the smallest sets on average (Sadinle et al., 2019)
        "aps"   s = sum of p_j over classes ranked before k, and p_k; sizes adapt to the image (Romano et al., 2020);
                the same image always gets the same set: p_k counts whole, and not a random part of it
        "raps"  that of "aps" + lam max(0, r_k - k_reg), which keeps sets small (Angelopoulos et al., 2021)
        In float64 the sums are 1 for every class of an image whose largest logit lies more than about 37 above the
        others; then "aps" tells no classes apart. Divide the logits of so sure a model by a temperature first.
    level: the probability that a set holds the true class. q is the m-th smallest of the n scores, where
        m = ceil((n + 1) level), the level m / n of their empirical distribution. Then the probability is at least
        `level`, and less than level + 1 / (n + 1) if no scores are equal. If m > n, every set holds all classes.
    empty: whether a set may be "allowed" to be empty, or "never" is, so that the most probable class is in every set;
        then the sets hold the true class more often than promised.
    lam, k_reg: of "raps". Equal probabilities are ranked by the number of their class.

    >>> logits = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]).log()
    >>> fitted = Conformal(level=0.8).fit(logits, torch.zeros(4, dtype=torch.long))
    >>> round(fitted.quantile, 4), fitted(torch.tensor([[0.5, 0.5], [0.65, 0.35], [0.9, 0.1]]).log()).tolist()
    (0.4, [[False, False], [True, False], [True, False]])
    """

    method: Literal["lac", "aps", "raps"] = "lac"
    level: InnerShare = 0.9
    empty: Literal["allowed", "never"] = "allowed"
    lam: NotNegative = 0.01
    k_reg: CountOrZero = 5

    def fit(self, logits: Tensor, labels: Tensor) -> FittedConformal:
        """Fit on logits (N, K) and labels (N,) of calibration images."""
        logits, labels = check_logits(logits, labels)
        refuse_probs(logits)
        return self.fit_probs(precise(logits).softmax(dim=1), labels)

    def fit_probs(self, probs: Tensor, labels: Tensor) -> FittedConformal:
        """Fit on probabilities (N, K), where they are not the softmax of some logits."""
        probs, labels = check_logits(probs, labels, name="probs")
        check_probs(probs)
        parts = [self._scores(probs[rows]).gather(1, labels[rows, None]) for rows in pieces_of(probs, _PIECE)]
        scores = torch.cat(parts).squeeze(1)
        count = len(scores)
        place = needed_count(self.level, count + 1)
        if place > count:
            # The smallest n with (n + 1) level <= n; the slack undoes the rounding of 0.9 / (1 - 0.9).
            least = math.ceil(self.level / (1 - self.level) - 1e-9)
            warn_user(
                f"a level of {self.level:g} needs at least {least} images, got {count}: every set holds all classes",
            )
            return FittedConformal(self, math.inf, count, probs.shape[1])
        return FittedConformal(self, float(scores.sort().values[place - 1]), count, probs.shape[1])

    def _scores(self, probs: Tensor) -> Tensor:
        """Return s(x, k), (N, K), in float64."""
        probs = precise(probs)
        if self.method == "lac":
            return 1 - probs
        ordered, order = probs.sort(dim=1, descending=True, stable=True)
        ranked = ordered.cumsum(dim=1)
        if self.method == "raps":
            rank = torch.arange(1, probs.shape[1] + 1, device=probs.device)
            ranked = ranked + self.lam * (rank - self.k_reg).clamp(min=0)
        return torch.empty_like(ranked).scatter_(1, order, ranked)


@dataclass(frozen=True)
class FittedConformal:
    """Logits (N, K) -> sets of classes, bool (N, K). `count` is the number of calibration images.

    num_classes: K; None, in files of before it was recorded, for any.
    """

    conformal: Conformal
    quantile: float
    count: int
    num_classes: int | None = None

    def __call__(self, logits: Tensor) -> Tensor:
        probs = precise(torch.as_tensor(logits).detach()).softmax(dim=-1)
        if probs.isnan().any():
            raise ValueError("logits must be numbers, got NaN, +inf or a row of -inf")
        return self.of_probs(probs)

    def of_probs(self, probs: Tensor) -> Tensor:
        """Return the sets for probabilities (N, K)."""
        if probs.ndim != 2 or probs.shape[1] != (self.num_classes or probs.shape[1]):
            raise ValueError(f"logits or probs must be (N, {self.num_classes or 'K'}), got {tuple(probs.shape)}")
        sets = torch.zeros(probs.shape, dtype=torch.bool, device=probs.device)
        for rows in pieces_of(probs, _PIECE):
            sets[rows] = self.conformal._scores(probs[rows]) <= self.quantile
        if self.conformal.empty == "never" and len(probs):
            sets.scatter_(1, probs.argmax(dim=1, keepdim=True), True)
        return sets
