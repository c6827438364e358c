"""The registry of scores by name: what each reads, which of them predictions allow, and all of these at once.

To add a score, write its function and enter it in REGISTRY: `evaluate`, studies and reports then have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regmixup import plugins
from regmixup.metrics.ordering import pieces_of, precise
from regmixup.metrics.scores import logit_scores
from regmixup.metrics.scores.features import KNN, FittedScore, default_k
from regmixup.metrics.scores.head_scores import ASH, ReAct, ViM
from regmixup.metrics.scores.logit_scores import Softmax, softmax_of
from regmixup.metrics.scores.mahalanobis import Mahalanobis, RelativeMahalanobis
from regmixup.metrics.threads import in_order
from regmixup.names import check_name
from regmixup.types import Predictions

_CHUNK = 2**18


@dataclass(frozen=True)
class Score:
    """An entry of the registry.

    reads: the field of predictions that the score is computed from. "probs" is for scores that see nothing of the
    logits but their softmax: where predictions have `probs` of their own (Monte-Carlo, mean of probabilities), those.
    function: from that field to scores (N,). Of "features" it is the fit, from train predictions to a `FittedScore`.
    head: the fit also reads the linear head of the train predictions.
    offered: True if `available` lists it, given these train predictions; by name it can always be asked for.
    """

    name: str
    reads: Literal["logits", "probs", "member_logits", "features"]
    function: Callable[..., Any]
    head: bool = False
    offered: Callable[[Predictions | None], bool] = lambda train: True


def _of_classes(score: Mahalanobis | RelativeMahalanobis | KNN) -> Callable[[Any], FittedScore]:
    return lambda train: score.fit(train.features, train.labels)


def _of_head(score: ViM | ReAct) -> Callable[[Any], FittedScore]:
    return lambda train: score.fit(train.features, train.head_weight, train.head_bias)


def _enough_neighbours(train: Predictions | None) -> bool:
    return train is not None and len(train) >= default_k(train.labels)


def _rectified(train: Predictions | None) -> bool:
    """Return False for features below 0, of networks without a last ReLU, for which ASH was not made."""
    return train is not None and train.features is not None and bool((train.features >= 0).all())


REGISTRY: dict[str, Score] = {
    score.name: score
    for score in (
        Score("dempster_shafer", "logits", logit_scores.dempster_shafer),
        Score("entropy", "probs", logit_scores.entropy),
        Score("energy", "logits", logit_scores.energy),
        Score("max_probability", "probs", logit_scores.max_probability),
        Score("max_logit", "logits", logit_scores.max_logit),
        Score("gen", "probs", logit_scores.gen),
        # ODIN sees no more than the softmax either, but its temperature divides logits, which a mean has not.
        Score("odin", "logits", logit_scores.odin),
        # Whether logits are log-kernels cannot be seen from them.
        Score("duq", "logits", logit_scores.duq, offered=lambda train: False),
        Score("mutual_information", "member_logits", logit_scores.mutual_information),
        Score("mahalanobis", "features", _of_classes(Mahalanobis())),
        Score("mahalanobis_tied", "features", _of_classes(Mahalanobis(covariance="tied"))),
        Score("relative_mahalanobis", "features", _of_classes(RelativeMahalanobis())),
        Score("knn", "features", _of_classes(KNN()), offered=_enough_neighbours),
        Score("vim", "features", _of_head(ViM()), head=True),
        Score("react", "features", _of_head(ReAct()), head=True),
        Score("ash", "features", lambda t: ASH().fit(t.head_weight, t.head_bias), head=True, offered=_rectified),
    )
}

SCORES: dict[str, Callable[[Tensor | Softmax], Tensor]] = {
    score.name: score.function
    for score in REGISTRY.values()
    if score.reads in ("logits", "probs") and score.offered(None)
}
"""The scores of logits that any model has, as functions."""
SCORES_OF_PROBS = frozenset(score.name for score in REGISTRY.values() if score.reads == "probs")


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
    if fit is not None:
        REGISTRY[name] = Score(name, "features", fit)
        return

    def score(logits: Tensor | Softmax) -> Tensor:
        table = softmax_of(logits).logits
        scores = function(table)  # type: ignore[misc]
        if not isinstance(scores, Tensor) or scores.shape != table.shape[:1]:
            shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"score {name} must return a tensor of shape ({len(table)},), got {shape}")
        return scores

    REGISTRY[name] = Score(name, "logits", score)
    SCORES[name] = score


def available(predictions: Predictions, train: Predictions | None = None) -> list[str]:
    """Return the scores that these predictions allow, given the train predictions to fit on, in table order."""
    plugins.load()  # whose scores are in every table, whichever process makes it
    return [
        score.name
        for score in REGISTRY.values()
        if not _missing(score, predictions)
        and (score.reads != "features" or (train is not None and not _missing(score, train, fit=True)))
        and score.offered(train)
    ]


def fit_scores(train: Predictions | None, names: Iterable[str] | None = None) -> dict[str, FittedScore]:
    """Return the scores of features among `names`, with default hyper-parameters, fitted on the train predictions.

    names: None for all that the train predictions allow. Scores that need no fit are skipped.
    """
    if names is None:
        names = available(train, train) if train is not None else []
    fitted = {}
    for name in names:
        score = _entry(name)
        if score.reads == "features":
            if train is None:
                raise ValueError(f"{name} needs train predictions to fit on, got None")
            if missing := _missing(score, train, fit=True):
                raise ValueError(missing)
            fitted[name] = score.function(train)
    return fitted


def score_all(
    predictions: Predictions, fitted: Mapping[str, FittedScore] | None = None, *, names: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """Return every score (N,) of every sample, by name, without temperature.

    fitted: scores of features, from `fit_scores` or one's own under any name; left out where there are no features.
    names: None for all that the predictions allow; else these, and what one of them needs and lacks is an error.
    """
    fitted = fitted or {}
    if names is None:
        names = [*available(predictions), *(fitted if predictions.features is not None else ())]
    names = list(dict.fromkeys(names))
    unfitted = [name for name in names if name not in fitted]
    for name in names:
        score = _entry(name) if name in unfitted else Score(name, "features", fitted[name])
        if name in unfitted and score.reads == "features":
            raise ValueError(f"{name} must be among the fitted scores, got {', '.join(fitted) or 'none'}")
        if missing := _missing(score, predictions):
            raise ValueError(missing)
    scores = {name: fitted[name](predictions.features) for name in names if name in fitted}  # type: ignore[arg-type]
    if unfitted:
        pieces = pieces_of(predictions.logits, _CHUNK)
        parts = list(
            in_order(
                lambda rows: scores_of_samples(some_samples(predictions, rows), unfitted),
                pieces,
                predictions.logits.device,
            )
        )
        scores |= {name: torch.cat([part[name] for part in parts]) for name in unfitted}
    return {name: scores[name] for name in names}


def some_samples(predictions: Predictions, chosen: slice | Tensor) -> Predictions:
    """Return some of the samples, a slice or a mask, with what metrics and scores that are not fitted need."""
    probs, members = predictions.probs, predictions.member_logits
    return Predictions(
        predictions.logits[chosen],
        predictions.labels[chosen],
        probs=probs[chosen] if probs is not None else None,
        member_logits=members[:, chosen] if members is not None else None,
        dataset=predictions.dataset,
        role=predictions.role,
        info=predictions.info,
    )


def scores_of_samples(
    predictions: Predictions, names: Iterable[str], softmax: Softmax | None = None
) -> dict[str, Tensor]:
    """Return scores that are not fitted for a few samples, all at once; `softmax` is that of their logits."""
    softmax = softmax if softmax is not None else Softmax(predictions.logits)
    inputs: dict[str, Any] = {
        "logits": softmax,
        "probs": softmax if predictions.probs is None else Softmax(precise(predictions.probs).log()),
        "member_logits": predictions.member_logits,
    }
    return {name: REGISTRY[name].function(inputs[REGISTRY[name].reads]) for name in names}


def _entry(name: str) -> Score:
    plugins.seek(name, REGISTRY)
    return REGISTRY[check_name("score", name, REGISTRY)]


def _missing(score: Score, predictions: Predictions, *, fit: bool = False) -> str:
    """Say what a score, or its fit, needs and the predictions do not hold; "" if they hold it. A bias may be absent."""
    fields: list[str] = [score.reads] if score.reads in ("member_logits", "features") else []
    fields += ["head_weight"] if fit and score.head else []
    absent = [field for field in fields if getattr(predictions, field) is None]
    if absent:
        absent_fields = " and ".join(absent)
        return f"{score.name} needs {absent_fields}, which the predictions for {predictions.dataset!r} do not hold"
    if score.reads == "logits" and predictions.from_probs:  # the logarithm of probabilities: their DS is constant
        return f"{score.name} needs the scale of logits, which the probs for {predictions.dataset!r} do not tell"
    return ""
