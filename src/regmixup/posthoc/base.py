"""What every posthoc method is: a frozen dataclass of hyper-parameters, whose fit is a map of predictions.

The contract of the map: `logits` of the result are the posterior mean (Dempster-Shafer, energy and the largest logit
are computed from them, so they are never divided by a temperature); `probs` are the predictive probabilities at that
temperature, or None where these are the softmax of the result's logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from regmixup.config import check_choices, check_number
from regmixup.posthoc.held_out import FitOn
from regmixup.types import Predictions


class FittedPosthoc(Protocol):
    """A map from predictions to predictions. The temperature divides logits: each sample's, where there are samples."""

    def __call__(self, predictions: Predictions, temperature: float = 1.0) -> Predictions: ...


@dataclass(frozen=True, kw_only=True)
class Posthoc(ABC):
    """Base of all posthoc methods. A subclass declares its fields, what it needs, and implements `fit`."""

    head: ClassVar[str]
    """The head, by name, whose predictions hold what the map reads; those of an ensemble do not."""

    def __post_init__(self) -> None:
        check_choices(self)

    @property
    def needs_train(self) -> bool:
        """Whether `fit` wants the predictions for the train set."""
        return False

    @property
    def needs_validation(self) -> bool:
        """Whether `fit` wants the predictions for the validation set."""
        return False

    @property
    def needs_features(self) -> bool:
        """Whether the fitted map wants the features of what it is given."""
        return False

    @abstractmethod
    def fit(
        self,
        *,
        train: Predictions | None = None,
        validation: Predictions | None = None,
        fit_on: FitOn = "validation",
    ) -> FittedPosthoc:
        """The map, fitted on the predictions it needs; others are ignored. `fit_on` as in `check_held_out`."""


def as_given(predictions: Predictions, temperature: float = 1.0) -> Predictions:
    """The fitted posthoc that does nothing but scale: predictions as they are, with `probs` at the temperature.

    An ensemble that averaged probabilities averages softmax(member logits / T); all else is softmax(logits / T).
    Sampled probabilities are neither: what made them must be asked for them at the temperature.
    """
    check_number("temperature", temperature, above=0)
    if temperature == 1:
        return predictions
    probs, members = predictions.probs, predictions.member_logits
    if probs is None or members is None:
        members = predictions.logits[None]
    if probs is not None and not torch.allclose(_mean_softmax(members, 1.0), probs.double(), rtol=0, atol=1e-3):
        raise ValueError(
            f"temperature must be 1 for the predictions for {predictions.dataset!r}, whose probs are not the softmax "
            f"of their logits, as those of Monte-Carlo samples are not; got {temperature}. Evaluate with the posthoc "
            "map that made them, or leave probs out"
        )
    return replace(predictions, probs=_mean_softmax(members, temperature))


def probabilities(predictions: Predictions) -> Tensor:
    """What the predictions say, float64 (N, K): their `probs`, or else the softmax of their logits."""
    return predictions.probs.double() if predictions.probs is not None else _softmax(predictions.logits, 1.0)


def _mean_softmax(members: Tensor, temperature: float) -> Tensor:
    """The mean of softmax(logits / T) over members, (M, N, K) -> float64 (N, K)."""
    return reduce(torch.add, (_softmax(member, temperature) for member in members)) / len(members)


def _softmax(logits: Tensor, temperature: float) -> Tensor:
    scaled = logits.double() / temperature if temperature != 1 else logits.double()
    return scaled.softmax(dim=1)


def required(predictions: Predictions, field: str, purpose: str) -> Tensor:
    """A field of the predictions that may be absent, or an error that names it."""
    value: Tensor | None = getattr(predictions, field)
    if value is None:
        raise ValueError(f"{purpose} needs {field}, which the predictions for {predictions.dataset!r} do not hold")
    return value
