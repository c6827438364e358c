"""Nothing is fitted on what is later reported: temperatures and priors come from held-out validation predictions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import torch

from regmixup.names import check_name
from regmixup.types import Predictions

FitOn = Literal["validation", "a test set, knowingly"]


def check_held_out(
    held_out: Predictions,
    reported: Iterable[Predictions] = (),
    *,
    fit_on: FitOn = "validation",
    role: Literal["validation", "train"] = "validation",
) -> None:
    """Raise if `held_out` is a test, shifted or derived set by its name, or one of those that are `reported`.

    fit_on: "a test set, knowingly" lets it pass, for those who want to see how much that would flatter.
    role: what the set was given as.

    >>> check_held_out(Predictions(torch.zeros(1, 2), torch.tensor([0]), dataset="svhn/test"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: svhn/test is no validation set: nothing may be fitted on it (...overrides)
    """
    check_name("fit_on", fit_on, get_args(FitOn))
    if fit_on == "validation" and (_by_name(held_out.dataset) or any(_same(held_out, p) for p in reported)):
        raise ValueError(
            f"{held_out.dataset or 'this'} is no {role} set: nothing may be fitted on it "
            '(fit_on or --fit-on "a test set, knowingly" overrides)'
        )


def _by_name(dataset: str) -> bool:
    """Names of this package's datasets say what they are: "family/test", "family-c/...", "path:...", "val-test"."""
    family, _, part = dataset.partition("/")
    return dataset.startswith("path:") or family.endswith("-c") or part.split("/")[0] in ("test", "val-test")


def _same(a: Predictions, b: Predictions) -> bool:
    """Probably the same set of samples: by what they are, or by name and size.

    A name alone may be that of two files in two folders.
    """
    return same_samples(a, b) or (a.dataset == b.dataset != "" and len(a) == len(b))


def same_samples(a: Predictions, b: Predictions) -> bool:
    """The same set of samples: by the data's fingerprint, or, where one has none, by what was said about it.

    Labels say nothing, as an OOD set may come without.
    """
    fingerprints = {p.info.get("data") for p in (a, b)}
    return len(fingerprints) == 1 if None not in fingerprints else torch.equal(a.logits, b.logits)
