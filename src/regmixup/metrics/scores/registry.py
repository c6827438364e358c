"""The registry of scores by name: what each reads, which of them predictions allow, and all of these at once.

To add a score, write its function and enter it in REGISTRY: `evaluate`, studies and reports then have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from regmixup import plugins
from regmixup.metrics.pieces import map_pieces, precise, select_samples
from regmixup.metrics.scores import logit_scores
from regmixup.metrics.scores.features import KNN, FittedScore, default_k
from regmixup.metrics.scores.head_scores import ASH, FDBD, SCALE, NNGuide, ReAct, ViM
from regmixup.metrics.scores.logit_scores import Softmax, softmax_of
from regmixup.metrics.scores.mahalanobis import Mahalanobis, RelativeMahalanobis
from regmixup.types import Predictions

_PIECE = 2**18


@dataclass(frozen=True)
class Score:
    """An entry of the registry.

    reads: the field of predictions that the score is computed from. "probs" is for scores that see nothing of the
    logits but their softmax: where predictions have `probs` of their own (Monte-Carlo, mean of probabilities), those.
    function: from that field to scores (N,). Of "features" it is the fit, from train predictions to a `FittedScore`.
    fits: True if it can, and should, be fitted on these train predictions, which hold features.
    """

    reads: Literal["logits", "probs", "member_logits", "features"]
    function: Callable[..., Any]
    fits: Callable[[Any], bool] = lambda train: True


def _fitted_on(fields: Sequence[str], score: Any, fits: Callable[[Any], bool] = lambda train: True) -> Score:
    """Return the entry of a score of features that is fitted on these fields of the train predictions."""
    return Score("features", lambda train: score.fit(*(getattr(train, name) for name in fields)), fits)


def _has_head(train: Predictions) -> bool:
    return train.head_weight is not None


def _has_rectified(train: Any) -> bool:
    """Return False for features below 0, of networks without a last ReLU, for which ASH and SCALE were not made."""
    return _has_head(train) and bool((train.features >= 0).all())


_HEAD = ("head_weight", "head_bias")
REGISTRY: dict[str, Score] = {
    "dempster_shafer": Score("logits", logit_scores.dempster_shafer),
    "entropy": Score("probs", logit_scores.entropy),
    "energy": Score("logits", logit_scores.energy),
    "max_probability": Score("probs", logit_scores.max_probability),
    "max_logit": Score("logits", logit_scores.max_logit),
    "gen": Score("probs", logit_scores.gen),
    # ODIN sees no more than the softmax either, but its temperature divides logits, which a mean has not.
    "odin": Score("logits", logit_scores.odin),
    # Neither is the p-norm of a logarithm of 0, which a mean of probabilities can hold.
    "max_logit_pnorm": Score("logits", logit_scores.max_logit_pnorm),
    "mutual_information": Score("member_logits", logit_scores.mutual_information),
    "mahalanobis": _fitted_on(("features", "labels"), Mahalanobis()),
    "mahalanobis_tied": _fitted_on(("features", "labels"), Mahalanobis(covariance="tied")),
    "relative_mahalanobis": _fitted_on(("features", "labels"), RelativeMahalanobis()),
    "knn": _fitted_on(("features", "labels"), KNN(), lambda train: len(train) >= default_k(train.labels)),
    "vim": _fitted_on(("features", *_HEAD), ViM(), _has_head),
    "react": _fitted_on(("features", *_HEAD), ReAct(), _has_head),
    "ash": _fitted_on(_HEAD, ASH(), _has_rectified),
    "scale": _fitted_on(_HEAD, SCALE(), _has_rectified),
    "fdbd": _fitted_on(("features", *_HEAD), FDBD(), _has_head),
    "nnguide": _fitted_on(("features", *_HEAD), NNGuide(), lambda train: _has_head(train) and len(train) >= NNGuide.k),
}

SCORES: dict[str, Callable[[Tensor | Softmax], Tensor]] = {
    name: score.function for name, score in REGISTRY.items() if score.reads in ("logits", "probs")
}
"""The scores of logits that any model has, as functions."""


def register(
    name: str,
    function: Callable[[Tensor], Tensor] | None = None,
    *,
    fit: Callable[[Predictions], Callable[[Tensor], Tensor]] | None = None,
    version: str = "",
) -> None:
    """Make a score of your own known by name; larger must mean more out-of-distribution. See `regmixup.plugins`.

    function: from logits (N, K), in float64, to scores (N,). fit: instead, a function from train Predictions with
    features to one from features (N, D) to scores (N,). Every evaluation that has what it needs then includes it.
    """
    if (function is None) == (fit is None) or not callable(function or fit):
        raise ValueError(f"score {name} must have either a function of logits or a fit, got {function!r} and {fit!r}")
    plugins.record("score", name, REGISTRY, version=version)
    if function is not None:
        SCORES[name] = lambda logits: _checked(name, function, softmax_of(logits).logits)
        REGISTRY[name] = Score("logits", SCORES[name])
    elif fit is not None:
        REGISTRY[name] = Score("features", lambda train: partial(_checked, name, fit(train)))


def _checked(name: str, function: Callable[[Tensor], Tensor], samples: Tensor) -> Tensor:
    """Return the scores (N,) of samples (N, ...) by a function of one's own."""
    scores = function(samples)
    if not isinstance(scores, Tensor) or scores.shape != (len(samples),) or scores.isnan().any():
        contract = f"must return a tensor of shape ({len(samples)},) without NaN, larger for more out-of-distribution"
        raise ValueError(f"score {name} {contract}, got {scores!r:.100}")
    return scores


def available(predictions: Predictions, train: Predictions | None = None) -> list[str]:
    """Return the scores that these predictions allow, given the train predictions to fit on, in table order."""
    plugins.load()  # whose scores are in every table, whichever process makes it
    return [name for name, score in REGISTRY.items() if _allowed(score, predictions, train)]


def _allowed(score: Score, predictions: Predictions, train: Predictions | None) -> bool:
    if score.reads == "logits":
        return not predictions.from_probs  # the logarithm of probabilities: their DS is constant
    if score.reads == "member_logits":
        return predictions.member_logits is not None
    if score.reads == "features":
        featured = predictions.features is not None and train is not None and train.features is not None
        return featured and score.fits(train)
    return True


def fit_scores(train: Predictions | None) -> dict[str, FittedScore]:
    """Return all scores of features that the train predictions allow, fitted on them with default hyper-parameters."""
    names = available(train, train) if train is not None else []
    return {name: REGISTRY[name].function(train) for name in names if REGISTRY[name].reads == "features"}


def score_all(predictions: Predictions, fitted: Mapping[str, FittedScore] | None = None) -> dict[str, Tensor]:
    """Return every score (N,) of every sample that the predictions allow, by name, without temperature.

    fitted: scores of features, from `fit_scores` or one's own under any name; left out where there are no features.
    """
    names = available(predictions)

    def score(rows: slice) -> dict[str, Tensor]:
        part = select_samples(predictions, rows)
        softmax = Softmax(part.logits)
        inputs: dict[str, Any] = {
            "logits": softmax,
            "probs": softmax if part.probs is None else Softmax(precise(part.probs).log()),
            "member_logits": part.member_logits,
        }
        return {name: REGISTRY[name].function(inputs[REGISTRY[name].reads]) for name in names}

    parts = list(map_pieces(score, predictions.logits, _PIECE))
    scores = {name: torch.cat([part[name] for part in parts]) for name in names}
    if fitted and predictions.features is not None:
        scores |= {name: of_features(predictions.features) for name, of_features in fitted.items()}
    return scores
