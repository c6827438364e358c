"""Nothing is fitted on what is later reported: temperatures and priors come from held-out validation predictions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import torch

from regmixup.names import check_name
from regmixup.types import Predictions

FitOn = Literal["validation", "a test set, knowingly"]


def check_held_out(
    validation: Predictions, reported: Iterable[Predictions] = (), *, fit_on: FitOn = "validation"
) -> None:
    """Raise if `validation` is a test, shifted or derived set by its name, or one of those that are `reported`.

    fit_on: "a test set, knowingly" lets it pass, for those who want to see how much that would flatter.

    >>> check_held_out(Predictions(torch.zeros(1, 2), torch.tensor([0]), dataset="svhn/test"))
    Traceback (most recent call last):
    ValueError: svhn/test is no validation set: nothing may be fitted on it (fit_on="a test set, knowingly" overrides)
    """
    check_name("fit_on", fit_on, get_args(FitOn))
    if fit_on == "validation" and (_by_name(validation.dataset) or any(_same(validation, p) for p in reported)):
        raise ValueError(
            f"{validation.dataset} is no validation set: nothing may be fitted on it "
            '(fit_on="a test set, knowingly" overrides)'
        )


def _by_name(dataset: str) -> bool:
    """Names of this package's datasets say what they are: "family/test", "family-c/...", "path:...", "val-test"."""
    family, _, part = dataset.partition("/")
    return dataset.startswith("path:") or family.endswith("-c") or part.split("/")[0] in ("test", "val-test")


def _same(a: Predictions, b: Predictions) -> bool:
    """The same set of samples: by name, by the data's fingerprint, or by what was said about it."""
    fingerprint = a.info.get("data")
    if a.dataset == b.dataset or (fingerprint is not None and fingerprint == b.info.get("data")):
        return True
    return torch.equal(a.labels, b.labels) and torch.equal(a.logits, b.logits)
