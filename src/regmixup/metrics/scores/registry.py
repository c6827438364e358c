"""The registry of scores by name: what each needs, which of them predictions allow, and all of these at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from regmixup import plugins
from regmixup.metrics.ordering import pieces_of, precise
from regmixup.metrics.scores.features import KNN, FittedScore, default_k
from regmixup.metrics.scores.head_scores import ASH, ReAct, ViM
from regmixup.metrics.scores.logit_scores import SCORES, SCORES_OF_PROBS, Softmax, duq, mutual_information, softmax_of
from regmixup.metrics.scores.mahalanobis import Mahalanobis, RelativeMahalanobis
from regmixup.metrics.threads import in_order
from regmixup.names import check_name
from regmixup.types import Predictions

_CHUNK = 2**18
_OF_LOGITS = {**SCORES, "duq": duq}
_FITTED = frozenset({"features", "train"})
_FITTED_WITH_HEAD = _FITTED | {"head"}


@dataclass(frozen=True)
class Score:
    """An entry of the registry.

    needs: among "logits", "member_logits", "features", "head" and "train". A score that needs "train" is fitted on
    train predictions with features, and with the head where it needs that, and then called on features.
    fit: that fit, with the default hyper-parameters.
    offered: True if `available` lists it, given these train predictions; by name it can always be asked for.
    """

    name: str
    needs: frozenset[str]
    fit: Callable[[Predictions], FittedScore] | None = None
    offered: Callable[[Predictions | None], bool] = lambda train: True


def _features(train: Predictions) -> Tensor:
    assert train.features is not None
    return train.features


def _head(train: Predictions) -> tuple[Tensor, Tensor | None]:
    assert train.head_weight is not None
    return train.head_weight, train.head_bias


REGISTRY: dict[str, Score] = {
    score.name: score
    for score in (
        *(Score(name, frozenset({"logits"})) for name in SCORES),
        # Whether logits are log-kernels cannot be seen from them.
        Score("duq", frozenset({"logits"}), offered=lambda train: False),
        Score("mutual_information", frozenset({"member_logits"})),
        Score("mahalanobis", _FITTED, lambda t: Mahalanobis().fit(_features(t), t.labels)),
        Score("mahalanobis_tied", _FITTED, lambda t: Mahalanobis(covariance="tied").fit(_features(t), t.labels)),
        Score("relative_mahalanobis", _FITTED, lambda t: RelativeMahalanobis().fit(_features(t), t.labels)),
        Score(
            "knn",
            _FITTED,
            lambda t: KNN().fit(_features(t), t.labels),
            lambda t: t is not None and len(t) >= default_k(t.labels),
        ),
        Score("vim", _FITTED_WITH_HEAD, lambda t: ViM().fit(_features(t), *_head(t))),
        Score("react", _FITTED_WITH_HEAD, lambda t: ReAct().fit(_features(t), *_head(t))),
        # Features below 0 come from networks without a last ReLU, for which ASH was not made.
        Score(
            "ash",
            _FITTED_WITH_HEAD,
            lambda t: ASH().fit(*_head(t)),
            lambda t: t is not None and bool((_features(t) >= 0).all()),
        ),
    )
}


def register(
    name: str,
    function: Callable[[Tensor], Tensor] | None = None,
    *,
    fit: Callable[[Predictions], FittedScore] | None = None,
    version: str = "",
) -> None:
    """Make a score of your own known by name; larger must mean more out-of-distribution. See `regmixup.plugins`.

    function: from logits (N, K), in float64, to scores (N,). fit: instead, a function from train Predictions with
    features to one from features (N, D) to scores (N,). Every evaluation that has what it needs then includes it.
    """
    if (function is None) == (fit is None) or not callable(function or fit):
        raise ValueError(f"score {name} must have either a function of logits or a fit, got {function!r} and {fit!r}")
    plugins.record("score", name, function or fit, REGISTRY, version=version)
    if fit is not None:
        REGISTRY[name] = Score(name, _FITTED, fit)
        return

    def score(logits: Tensor | Softmax) -> Tensor:
        given = softmax_of(logits).logits
        found = function(given)  # type: ignore[misc]
        if not isinstance(found, Tensor) or found.shape != given.shape[:1]:
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(f"score {name} must return a tensor of shape ({len(given)},), got {shape}")
        return found

    REGISTRY[name] = Score(name, frozenset({"logits"}))
    SCORES[name] = _OF_LOGITS[name] = score


def available(predictions: Predictions, train: Predictions | None = None) -> list[str]:
    """Return the scores that these predictions allow, given the train predictions to fit on, in table order."""
    plugins.load()  # whose scores are in every table, whichever process makes it
    return [
        score.name
        for score in REGISTRY.values()
        if not _absent(predictions, score.needs - {"head"})
        and ("train" not in score.needs or (train is not None and not _absent(train, score.needs)))
        and score.offered(train)
        and not _lost(predictions, score.name)
    ]


def fit_scores(train: Predictions | None, names: Iterable[str] | None = None) -> dict[str, FittedScore]:
    """Return the scores of features among `names`, with default hyper-parameters, fitted on the train predictions.

    names: None for all that the train predictions allow. Scores that need no fit are skipped.
    """
    if names is None:
        names = available(train, train) if train is not None else []
    fitted = {}
    for name in names:
        plugins.seek(name, REGISTRY)
        score = REGISTRY[check_name("score", name, REGISTRY)]
        if score.fit is not None:
            if train is None:
                raise ValueError(f"{name} needs train predictions to fit on, got None")
            _check_held(name, train, score.needs)
            fitted[name] = score.fit(train)
    return fitted


def score_all(
    predictions: Predictions, fitted: Mapping[str, FittedScore] | None = None, *, names: Iterable[str] | None = None
) -> dict[str, Tensor]:
    """Return every score (N,) of every sample, by name, without temperature.

    fitted: scores of features, from `fit_scores` or one's own under any name; left out where there are no features.
    names: None for all that the predictions allow; else these, and what one of them needs and lacks is an error.
    Where the predictions have `probs` of their own (Monte-Carlo, mean of probabilities), entropy, max_probability and
    gen are those of `probs`; the other scores of logits are always those of the logits.
    """
    fitted = fitted or {}
    if names is None:
        names = [*available(predictions), *(fitted if predictions.features is not None else ())]
    names = list(dict.fromkeys(names))
    for name in names:
        _check_possible(name, predictions, fitted)
    unfitted = [name for name in names if name not in fitted]
    found = {name: fitted[name](_features(predictions)) for name in names if name in fitted}
    if unfitted:
        pieces, device = pieces_of(predictions.logits, _CHUNK), predictions.logits.device
        parts = list(in_order(lambda rows: scores_of_rows(rows_of(predictions, rows), unfitted), pieces, device))
        found |= {name: torch.cat([part[name] for part in parts]) for name in unfitted}
    return {name: found[name] for name in names}


def rows_of(predictions: Predictions, some: slice | Tensor) -> Predictions:
    """Return some of the samples, a slice or a mask, with what metrics and scores that are not fitted need."""
    probs, members = predictions.probs, predictions.member_logits
    return Predictions(
        predictions.logits[some],
        predictions.labels[some],
        probs=probs[some] if probs is not None else None,
        member_logits=members[:, some] if members is not None else None,
        dataset=predictions.dataset,
        role=predictions.role,
        info=predictions.info,
    )


def scores_of_rows(predictions: Predictions, names: Iterable[str], softmax: Softmax | None = None) -> dict[str, Tensor]:
    """Return scores that are not fitted for a few samples, all at once; `softmax` is that of their logits."""
    softmax = softmax if softmax is not None else Softmax(predictions.logits)
    own = softmax if predictions.probs is None else Softmax(precise(predictions.probs).log())
    found = {}
    for name in names:
        if name == "mutual_information":
            assert predictions.member_logits is not None
            found[name] = mutual_information(predictions.member_logits)
        else:
            found[name] = _OF_LOGITS[name](own if name in SCORES_OF_PROBS else softmax)
    return found


def _check_possible(name: str, predictions: Predictions, fitted: Mapping[str, FittedScore]) -> None:
    if name in fitted:
        _check_held(name, predictions, {"features"})
        return
    plugins.seek(name, REGISTRY)
    needs = REGISTRY[check_name("score", name, {**REGISTRY, **fitted})].needs
    if "train" in needs:
        raise ValueError(f"{name} must be among the fitted scores, got {', '.join(fitted) or 'none'}")
    _check_held(name, predictions, needs)
    if _lost(predictions, name):
        raise ValueError(f"{name} needs the scale of logits, which the probs for {predictions.dataset!r} do not tell")


def _lost(predictions: Predictions, name: str) -> bool:
    """Return True for scores that the logarithm of probabilities does not allow: their DS would be constant."""
    return predictions.from_probs and name in _OF_LOGITS and name not in SCORES_OF_PROBS


def _check_held(name: str, predictions: Predictions, needs: Iterable[str]) -> None:
    if absent := _absent(predictions, needs):
        fields = " and ".join(absent)
        raise ValueError(f"{name} needs {fields}, which the predictions for {predictions.dataset!r} do not hold")


def _absent(predictions: Predictions, needs: Iterable[str]) -> list[str]:
    """Return the fields of the predictions that stand for these needs and are None. A head may have no bias."""
    fields = ["head_weight" if need == "head" else need for need in sorted(needs) if need != "train"]
    return [field for field in fields if getattr(predictions, field) is None]
