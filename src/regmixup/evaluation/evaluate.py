"""Evaluate one model: predictions, or a module and its loaders, to rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from regmixup.evaluation.class_subset import restrict_pair, restrict_predictions
from regmixup.evaluation.metric_rows import Measure, Version, fisher_rows, shown_name
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.detection import Ordered
from regmixup.metrics.outcomes import Condition, mean_corruption_error
from regmixup.metrics.registry import CLASSIFICATION
from regmixup.metrics.scores import available, fit_scores, score_all
from regmixup.names import check_name
from regmixup.posthoc import FittedPosthoc, TemperatureScaling, as_given, probabilities
from regmixup.posthoc.base import FitOn, check_held_out, same_samples
from regmixup.predictions.forward import predict_batches
from regmixup.types import MEAN, Predictions, Quantity, Role, Row, look_like_probabilities, not_finite, with_known_scale

Batches = Iterable[Sequence[Tensor] | Tensor]
_LOADERS = ("test", "validation", "shift", "ood")


def evaluate(
    subject: Predictions | nn.Module,
    loaders: Mapping[str, Batches | Mapping[str, Batches]] | None = None,
    *,
    validation: Predictions | None = None,
    train: Predictions | None = None,
    shift: Sequence[Predictions] = (),
    ood: Sequence[Predictions] = (),
    posthoc: FittedPosthoc | None = None,
    temperature: float | None = None,
    class_subset: bool = True,
    bootstrap: Bootstrap | None = Bootstrap(),  # noqa: B008 a frozen value
    fit_on: FitOn = "validation",
    row: Row | None = None,
    resampled: dict[Quantity, Tensor] | None = None,
) -> list[Row]:
    """Return all rows of one model, from its test predictions, or from the model itself and its loaders.

    subject: in-distribution test `Predictions`, or an `nn.Module` from images, or other inputs (N, ...), to logits or
    an output that holds them: a dict with "logits", an object with `.logits`, a tuple that begins with them.
    loaders: for a module, {"test": loader, "validation": loader, "shift": {name: loader}, "ood": {name: loader}}; all
    but "test" may be left out. A loader is any iterable of (x, y); OOD labels are ignored, so there x alone suffices.
    They take the place of `validation`, `shift` and `ood`.
    validation: where the temperature is chosen, by ECE; without it there are no temperature-scaled rows.
    train: train predictions with features, on which scores of features are fitted; without them there are only scores
    of logits, and of ensemble members.
    shift: predictions for shifted versions of the test set, named "<family>/<corruption>/<severity>"; each gets its
    own rows, and their plain mean over the subsets is added with corruption "mean" (except the Fisher criterion's).
    ood: out-of-distribution sets, scored without temperature by every score.
    posthoc: applied to all predictions first; the temperature then divides the logits of every sample it draws.
    temperature: one chosen elsewhere, as by `fit_temperature` on a companion model's validation predictions, instead
    of `validation`.
    class_subset: for sets that cover some of the classes (ImageNet-A, -R, -O), compare only the logits of these, and
    for OOD sets only the test images of these classes; the dataset's name then says so. False compares all.
    bootstrap: how `low` and `high` of each row are found; None leaves them out. Shifted versions of the test images
    are resampled together with them.
    fit_on: a validation or train set that is one of the test, shifted or OOD sets is rejected unless this says "a test
    set, knowingly".
    row: a template whose study, run, method, ... every row carries.
    resampled: a table to fill with the values of every row on the bootstrap's resamples, (R,) by `row.quantity`.

    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    >>> batch = [(torch.rand(8, 1, 2, 2), torch.arange(8) % 3)]
    >>> noise = [torch.rand(8, 1, 2, 2)]
    >>> rows = evaluate(model, {"test": batch, "ood": {"noise": noise}}, bootstrap=None)
    >>> sorted({row.dataset for row in rows})
    ['noise', 'test']
    """
    if isinstance(subject, Predictions):
        if loaders is not None:
            raise ValueError("loaders must be left out where predictions are given: pass validation=, shift=, ood=")
        test = subject
    elif not isinstance(subject, nn.Module):
        raise ValueError(
            f"subject must be Predictions or an nn.Module, got {type(subject).__name__}"
            + ", which cannot be put into evaluation mode: make it the forward of an nn.Module" * callable(subject)
        )
    elif validation is not None or shift or ood:
        raise ValueError("validation, shift and ood must be left out where a module is given: pass their loaders")
    else:
        test, validation, shift, ood = _predict_loaders(subject, loaders)
    _check_sets(test, [p for p in (validation, train) if p is not None], shift, ood)
    test, *ood = map(with_known_scale, (test, *ood))
    if validation is not None and temperature is not None:
        raise ValueError(f"temperature must be None where it is chosen on {validation.dataset}, got {temperature}")
    if validation is not None:
        check_held_out(validation, [test, *shift, *ood], fit_on=fit_on)
    if train is not None:
        for name, given in (("train", train), ("test", test)):
            if given.features is None:
                raise ValueError(f"{name} predictions must hold features where a train set is given, got none")
        check_held_out(train, [test, *shift, *ood], fit_on=fit_on, role="train")
    posthoc = posthoc if posthoc is not None else as_given
    if validation is not None:
        temperature = fit_temperature(posthoc, validation, fit_on=fit_on)
    measure = Measure(bootstrap, row if row is not None else Row(), fit_scores(train), resampled)
    return _rows(_Sets(test, validation, shift, ood), measure, posthoc, temperature, class_subset)


class _Sets(NamedTuple):
    """The predictions of one model for all its sets."""

    test: Predictions
    validation: Predictions | None
    shift: Sequence[Predictions]
    ood: Sequence[Predictions]


def _rows(
    sets: _Sets, measure: Measure, posthoc: FittedPosthoc, temperature: float | None, class_subset: bool
) -> list[Row]:
    """Return the rows of all sets, which have been checked, at a temperature that has been chosen."""

    def restricted(predictions: Predictions) -> bool:
        return class_subset and "class_subset" in predictions.info

    def versions(predictions: Predictions, unscaled: Predictions | None = None) -> dict[str, Version]:
        """Return the versions without and with temperature."""
        unscaled = unscaled if unscaled is not None else posthoc(predictions)
        found = {"none": Version(unscaled)}
        if temperature is not None:
            plain = posthoc is as_given and not restricted(predictions)
            scaled = Version(unscaled, temperature) if plain else Version(posthoc(predictions, temperature))
            found["temperature"] = scaled
        if restricted(predictions):
            return {name: Version(restrict_predictions(version.predictions)) for name, version in found.items()}
        return found

    known = posthoc(sets.test)
    measured = versions(sets.test, known)
    named = replace(measure.row, dataset=shown_name(measured["none"].predictions))
    of_logits = available(measured["none"].predictions)
    rows, _, images = measure.classification(measured, named, tuple(CLASSIFICATION), of_logits)
    if temperature is not None:
        rows.append(replace(named, posthoc="temperature", metric="temperature", value=temperature))
    prior_variance = getattr(posthoc, "prior_variance", None)
    if prior_variance is not None:
        rows.append(replace(named, metric="prior_variance", value=prior_variance))
    rows += fisher_rows(sets.test, named)
    if restricted(sets.test):
        id_scores, correct = score_all(known, measure.fitted), _correct(known)
    else:
        id_scores = images.scores | score_all(known, measure.fitted, names=measure.fitted)
        correct = images.outcomes.correct
    rows += measure.selective(id_scores | images.scores, images.outcomes.correct, named)
    rows += measure.shift(map(versions, sets.shift))
    ordered = {name: Ordered(score) for name, score in id_scores.items()} if sets.ood else {}
    for other in map(posthoc, sets.ood):
        if restricted(other):
            own, other = restrict_pair(known, other)
            rows += measure.detection(score_all(own, measure.fitted), _correct(own), other)
        else:
            rows += measure.detection(id_scores, correct, other, ordered)
    return rows


def _correct(predictions: Predictions) -> Tensor:
    return probabilities(predictions).argmax(dim=1) == predictions.labels


def _predict_loaders(model: nn.Module, loaders: Mapping[str, Any] | None) -> _Sets:
    """Predict the batches of all loaders, as `evaluate` describes them."""
    if not isinstance(loaders, Mapping) or "test" not in loaders:
        got = f"the keys {list(loaders)}" if isinstance(loaders, Mapping) else type(loaders).__name__
        raise ValueError(f'loaders must be a table with at least "test", such as {{"test": loader}}, got {got}')
    for key in loaders:
        check_name("role in loaders", key, _LOADERS)

    def predict(name: str, batches: Any, role: Role) -> Predictions:
        if isinstance(batches, Mapping | Tensor):
            one = "x" if role == "ood" else "(x, y)"
            got = "a table" if isinstance(batches, Mapping) else f"a tensor {tuple(batches.shape)}: pass [{one}]"
            raise ValueError(f'the loader of "{name}" must be an iterable of batches {one}, got {got}')
        return predict_batches(model, batches, dataset=name, labelled=role != "ood", role=role)

    def group(key: str, role: Role) -> list[Predictions]:
        named = loaders.get(key, {})
        if not isinstance(named, Mapping):
            raise ValueError(f'loaders["{key}"] must be a table of names and loaders, got {type(named).__name__}')
        return [predict(name, batches, role) for name, batches in named.items()]

    validation = predict("validation", loaders["validation"], "validation") if "validation" in loaders else None
    test = predict("test", loaders["test"], "test")
    return _Sets(test, validation, group("shift", "shifted"), group("ood", "ood"))


def _check_sets(
    test: Predictions, fitted_on: Sequence[Predictions], shift: Sequence[Predictions], ood: Sequence[Predictions]
) -> None:
    for group in (shift, ood):
        repeated = {name for name, count in Counter(p.dataset for p in group).items() if count > 1}
        if repeated:
            names = ", ".join(name or "one without a name" for name in sorted(repeated))
            raise ValueError(f"each dataset must be given once, got {names} more than once")
    for one in (test, *fitted_on, *shift, *ood):
        found = not_finite(one.logits) if len(one) else "none"
        if found:
            raise ValueError(f"{one.dataset or 'predictions'} must hold finite logits of some samples, got {found}")
        if one.logits.shape[1] > 1 and look_like_probabilities(one.logits, percent=True):
            raise ValueError(
                f"the logits of {one.dataset or 'a set'} look like probabilities, numbers >= 0 that sum to 1 or 100: "
                "pass what comes before the softmax, or call them probs (a key in files; rm.predictions.from_probs)"
            )
    for other in (*fitted_on, *shift, *ood):
        runs = {test.info.get("run", ""), other.info.get("run", "")} - {""}
        if len(runs) > 1:
            raise ValueError(
                f"{other.dataset} and {test.dataset} must be predicted by one model, got those of runs "
                f"{' and '.join(sorted(run[:12] for run in runs))}"
            )
        if other.logits.shape[1] != test.logits.shape[1]:
            raise ValueError(
                f"{other.dataset} has {other.logits.shape[1]} classes, {test.dataset} has {test.logits.shape[1]}: "
                "they cannot come from one model"
            )
    for other in ood:
        if same_samples(test, other):
            raise ValueError(
                f"an OOD set must hold other samples than the test set, got {other.dataset or 'one'} with the same "
                f"data or logits as {test.dataset or 'the test set'}"
            )


def fit_temperature(posthoc: FittedPosthoc, validation: Predictions, *, fit_on: FitOn = "validation") -> float:
    """Return the temperature of the smallest validation ECE, for predictions that pass through `posthoc`.

    Searches the whole grid where a temperature divides plain logits, from coarse to fine where each needs new samples.
    """
    check_held_out(validation, fit_on=fit_on)
    unscaled = posthoc(validation)
    if unscaled.probs is None:
        return TemperatureScaling().fit(unscaled.logits, unscaled.labels).temperature
    fitted = TemperatureScaling().fit_predictive(lambda t: probabilities(posthoc(validation, t)), validation.labels)
    return fitted.temperature


def relative_rows(rows: Iterable[Row], *, reference: str) -> list[Row]:
    """Return mCE rows of all methods relative to the `reference` method of the same network, train set and seed.

    rows: with accuracies per (corruption, severity). Where the reference is missing, was measured under other
    conditions or makes no error under some corruption, there is no mCE.
    """
    errors: dict[tuple[object, ...], dict[Condition, float]] = {}
    templates: dict[tuple[object, ...], Row] = {}
    for row in rows:
        if row.metric == "accuracy" and row.severity is not None:
            key: tuple[object, ...] = (row.method, row.network, row.train_set, row.seed, row.dataset, row.posthoc)
            errors.setdefault(key, {})[row.corruption, row.severity] = 1 - row.value
            templates.setdefault(key, row)
    found = []
    for key, own in errors.items():
        theirs = errors.get((reference, *key[1:]), {})
        corruptions = {corruption for corruption, _ in own}
        if set(own) == set(theirs) and all(any(theirs[c] > 0 for c in theirs if c[0] == name) for name in corruptions):
            mean = replace(templates[key], corruption=MEAN, severity=None, low=None, high=None, n=None)
            value = mean_corruption_error(own, theirs)
            found.append(replace(mean, metric=f"mce_relative_to_{reference}", value=value))
    return found
