"""Every score of every sample of a test set and its OOD sets, computed once for the rows and the figures of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch import Tensor

from regmixup.evaluation.class_subset import restrict_pair, restrict_predictions
from regmixup.metrics.scores import FittedScore, score_all
from regmixup.types import Predictions


class PairScores(NamedTuple):
    """The scores of an OOD set and of the test images that it is compared with, see `restrict_pair`: (N,) by name.

    dataset: the name of the OOD set, which says if it covers some of the classes.
    """

    dataset: str
    inside: Mapping[str, Tensor]
    outside: Mapping[str, Tensor]


class SetScores(NamedTuple):
    """test: the scores of all test images, (N,) by name. pairs: by OOD set."""

    test: Mapping[str, Tensor]
    pairs: Mapping[str, PairScores]


def score_sets(
    test: Predictions, ood: Iterable[Predictions], fitted: Mapping[str, FittedScore] | None = None
) -> SetScores:
    """Return the scores of a test set and of OOD sets, those of features by what was `fitted` on train predictions."""
    scores, pairs = score_all(restrict_predictions(test), fitted), {}
    for predictions in ood:
        inside, outside = restrict_pair(test, predictions)
        id_scores = scores if inside is test else score_all(inside, fitted)
        pairs[predictions.dataset] = PairScores(outside.dataset, id_scores, score_all(outside, fitted))
    return SetScores(scores, pairs)
