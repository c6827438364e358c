"""The base of posthoc methods: a frozen dataclass of hyper-parameters whose `fit` returns a map of predictions.

The contract of the map: `logits` of the result are the posterior mean (Dempster-Shafer, energy and the largest logit
are computed from them, so they are never divided by a temperature); `probs` are the predictive probabilities at that
temperature, or None where these are the softmax of the result's logits.

Nothing is fitted on what is later reported: `check_held_out` rejects test, shifted and OOD sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from regmixup.config import Checked, check_number
from regmixup.types import Predictions

_REPORTED = ("test", "shifted", "ood")


class FittedPosthoc(Protocol):
    """A map from predictions to predictions. The temperature divides logits: each sample's, where there are samples."""

    def __call__(self, predictions: Predictions, temperature: float = 1.0) -> Predictions: ...


@dataclass(frozen=True, kw_only=True)
class Posthoc(Checked):
    """Base of all posthoc methods. A subclass declares its fields and what it needs, and has `fit`, or is the map."""

    head: ClassVar[str]
    """The head, by name, whose predictions hold what the map reads; those of an ensemble do not."""

    needs_train: ClassVar[bool] = False
    """True if `fit` needs the predictions for the train set."""
    needs_features: ClassVar[bool] = False
    """True if the fitted map needs the features of what it is given."""

    @property
    def needs_validation(self) -> bool:
        """True if `fit` needs the predictions for the validation set."""
        return False

    def fit(self, *, train: Predictions | None = None, validation: Predictions | None = None) -> FittedPosthoc:
        """Return the map, fitted on the predictions it needs; itself, where there is nothing to fit."""
        assert callable(self)
        return self


def as_given(predictions: Predictions, temperature: float = 1.0) -> Predictions:
    """Return predictions as they are, with `probs` at the temperature: the fitted posthoc that only scales.

    These are softmax(logits / T). Sampled probabilities are not: what made them must be asked for them at the
    temperature.
    """
    check_number("temperature", temperature, above=0)
    if temperature == 1:
        return predictions
    logits, probs = predictions.logits.double(), predictions.probs
    if probs is not None and not torch.allclose(logits.softmax(dim=1), probs.double(), rtol=0, atol=1e-3):
        raise ValueError(
            f"temperature must be 1 for the predictions for {predictions.dataset!r}, whose probs are not the softmax "
            f"of their logits, as those of Monte-Carlo samples are not; got {temperature}. Evaluate with the posthoc "
            "map that made them, or leave probs out"
        )
    return replace(predictions, probs=(logits / temperature).softmax(dim=1))


def probabilities(predictions: Predictions) -> Tensor:
    """Return the predicted probabilities, float64 (N, K): their `probs`, or else the softmax of their logits."""
    return predictions.probs.double() if predictions.probs is not None else predictions.logits.double().softmax(dim=1)


def required(predictions: Predictions, field: str, purpose: str) -> Tensor:
    """Return a field of the predictions that may be absent; raise an error that names it if it is."""
    tensor: Tensor | None = getattr(predictions, field)
    if tensor is None:
        raise ValueError(f"{purpose} needs {field}, which the predictions for {predictions.dataset!r} do not hold")
    return tensor


def check_held_out(
    held_out: Predictions,
    reported: Iterable[Predictions] = (),
    *,
    role: Literal["validation", "train"] = "validation",
) -> None:
    """Raise if `held_out` is a test, shifted or OOD set by its role, or one of those that are `reported`.

    Nor may a validation set be one of train images.

    role: what the set was given as. A set is a reported one by its samples, or by its name and size: a name alone may
    be that of two files in two folders.

    >>> check_held_out(Predictions(torch.zeros(1, 2), torch.tensor([0]), dataset="svhn/test"))
    Traceback (most recent call last):
    ValueError: svhn/test is no validation set: nothing may be fitted on it, its role is test
    """
    wrong = _REPORTED if role == "train" else (*_REPORTED, "train")  # the model is surer of what it was trained on
    refusal = f"{held_out.dataset or 'this'} is no {role} set: nothing may be fitted on it"
    if held_out.role in wrong:
        raise ValueError(f"{refusal}, its role is {held_out.role}")
    for predictions in reported:
        same_name = held_out.dataset != "" and held_out.dataset == predictions.dataset
        if (same_name and len(held_out) == len(predictions)) or share_samples(held_out, predictions):
            raise ValueError(f"{refusal}, it is {predictions.dataset or 'a set'} that is reported, by name or content")


def share_samples(a: Predictions, b: Predictions) -> bool:
    """Return True for the same samples, or where one set is part of the other, as cifar10/openood-val of cifar10/test.

    The data's fingerprints tell, or, where one has none, the logits: labels do not, as an OOD set may come without.
    """
    if "data" not in a.info or "data" not in b.info:
        return torch.equal(a.logits, b.logits)
    return a.info["data"] in (b.info["data"], b.info.get("whole")) or b.info["data"] == a.info.get("whole")
