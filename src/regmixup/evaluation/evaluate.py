"""Evaluate one model: predictions, or a module and its loaders, to rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from regmixup.evaluation.class_subset import restrict_pair, restrict_predictions
from regmixup.evaluation.metric_rows import Measure, Version, fisher_rows, shown_name
from regmixup.evaluation.rows import Rows
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.registry import CLASSIFICATION
from regmixup.metrics.scores import available, fit_scores, score_all
from regmixup.metrics.shift import Condition, mean_corruption_error
from regmixup.names import check_name
from regmixup.posthoc import FittedPosthoc, TemperatureScaling, as_given, probabilities
from regmixup.posthoc.base import check_held_out, same_samples
from regmixup.predictions.forward import predict_batches
from regmixup.types import MEAN, Predictions, Role, Row, look_like_probabilities, not_finite, with_known_scale

Batches = Iterable[Sequence[Tensor] | Tensor]
_LOADERS = ("test", "validation", "shift", "ood")


@dataclass(frozen=True, kw_only=True)
class ModelPredictions:
    """The predictions of one model for all its sets, as `evaluate` describes them.

    test: in-distribution, with labels. name: how the model is called.
    """

    test: Predictions
    name: str = ""
    validation: Predictions | None = None
    train: Predictions | None = None
    shift: Sequence[Predictions] = ()
    ood: Sequence[Predictions] = ()
    posthoc: FittedPosthoc | None = None
    temperature: float | None = None


def evaluate(
    subject: Predictions | nn.Module,
    loaders: Mapping[str, Batches | Mapping[str, Batches]] | None = None,
    *,
    validation: Predictions | None = None,
    train: Predictions | None = None,
    shift: Sequence[Predictions] = (),
    ood: Sequence[Predictions] = (),
    groups: Mapping[str, Sequence[str]] | None = None,
    posthoc: FittedPosthoc | None = None,
    temperature: float | None = None,
    class_subset: bool = True,
    bootstrap: Bootstrap | None = Bootstrap(),  # noqa: B008 a frozen value
    row: Row | None = None,
) -> Rows:
    """Return all rows of one model, from its test predictions, or from the model itself and its loaders.

    The result is a list, which prints as a table and has `.to_pandas()`.

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
    groups: names of OOD sets by the name of a group, {"near": ["cifar100/test", ...], "far": [...]}: adds rows with the
    plain mean over the sets of each, whose dataset is the group's name.
    posthoc: applied to all predictions first; the temperature then divides the logits of every sample it draws.
    temperature: one chosen elsewhere, as by `fit_temperature` on a companion model's validation predictions, instead
    of `validation`.
    class_subset: for sets that cover some of the classes (ImageNet-A, -R, -O), compare only the logits of these, and
    for OOD sets only the test images of these classes; the dataset's name then says so. False compares all.
    bootstrap: how `low` and `high` of each row are found; None leaves them out. Shifted versions of the test images
    are resampled together with them.
    row: a template whose study, run, method, ... every row carries.

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
        sets = ModelPredictions(test=subject, validation=validation, shift=shift, ood=ood)
    elif not isinstance(subject, nn.Module):
        raise ValueError(
            f"subject must be Predictions or an nn.Module, got {type(subject).__name__}"
            + ", which cannot be put into evaluation mode: make it the forward of an nn.Module" * callable(subject)
        )
    elif validation is not None or shift or ood:
        raise ValueError("validation, shift and ood must be left out where a module is given: pass their loaders")
    else:
        sets = _predict_loaders(subject, loaders)
    model = replace(sets, train=train, posthoc=posthoc, temperature=temperature)
    _check_sets(model)
    _check_fitted_on(model)
    for group, datasets in (groups or {}).items():
        missing = [dataset for dataset in datasets if dataset not in {predictions.dataset for predictions in model.ood}]
        if missing or not datasets:
            raise ValueError(f"group {group!r} must name OOD sets that are given, got {', '.join(missing) or 'none'}")
    test, *ood = map(with_known_scale, (model.test, *model.ood))
    if model.validation is not None:
        temperature = fit_temperature(posthoc if posthoc is not None else as_given, model.validation)
    model = replace(model, test=test, ood=ood, temperature=temperature)
    measure = Measure(bootstrap, row if row is not None else Row(), fit_scores(train))
    return Rows(_measure(model, measure, class_subset, groups or {}), measure.resampled)


def _measure(
    model: ModelPredictions, measure: Measure, class_subset: bool, groups: Mapping[str, Sequence[str]]
) -> list[Row]:
    """Return the rows of all sets, which have been checked, at a temperature that has been chosen."""
    posthoc = model.posthoc if model.posthoc is not None else as_given
    temperature = model.temperature

    def restricted(predictions: Predictions) -> bool:
        return class_subset and "class_subset" in predictions.info

    def versions(predictions: Predictions, unscaled: Predictions) -> dict[str, Version]:
        """Return a set without and with temperature; of one that covers some of the classes, their logits alone."""
        scaled = {"none": Version(unscaled)}
        if temperature is not None:
            plain = posthoc is as_given and not restricted(predictions)
            scaled["temperature"] = (
                Version(unscaled, temperature) if plain else Version(posthoc(predictions, temperature))
            )
        if restricted(predictions):
            return {name: Version(restrict_predictions(version.predictions)) for name, version in scaled.items()}
        return scaled

    known = posthoc(model.test)
    measured = versions(model.test, known)
    named = replace(measure.row, dataset=shown_name(measured["none"].predictions))
    of_logits = available(measured["none"].predictions)
    rows, images = measure.classification(measured, named, CLASSIFICATION, of_logits)
    if temperature is not None:
        rows.append(replace(named, posthoc="temperature", metric="temperature", value=temperature))
    prior_variance = getattr(posthoc, "prior_variance", None)
    if prior_variance is not None:
        rows.append(replace(named, metric="prior_variance", value=prior_variance))
    rows += fisher_rows(model.test, named)
    if restricted(model.test):
        id_scores, correct = score_all(known, measure.fitted), _correct(known)
    else:
        id_scores = images.scores | score_all(known, measure.fitted, names=measure.fitted)
        correct = images.outcomes.correct
    rows += measure.selective(id_scores | images.scores, images.outcomes.correct, named)
    rows += measure.shift(versions(shifted, posthoc(shifted)) for shifted in model.shift)
    detected: dict[str, list[Row]] = {}
    for other in map(posthoc, model.ood):
        if restricted(other):
            inside, outside = restrict_pair(known, other)
            detected[other.dataset] = measure.detection(score_all(inside, measure.fitted), _correct(inside), outside)
        else:
            detected[other.dataset] = measure.detection(id_scores, correct, other)
    rows += [row for of_set in detected.values() for row in of_set]
    return rows + measure.groups(detected, groups)


def _correct(predictions: Predictions) -> Tensor:
    return probabilities(predictions).argmax(dim=1) == predictions.labels


def _predict_loaders(model: nn.Module, loaders: Mapping[str, Any] | None) -> ModelPredictions:
    """Predict the batches of all loaders, as `evaluate` describes them."""
    if not isinstance(loaders, Mapping) or "test" not in loaders:
        got = f"the keys {list(loaders)}" if isinstance(loaders, Mapping) else type(loaders).__name__
        raise ValueError(f'loaders must be a table with at least "test", such as {{"test": loader}}, got {got}')
    for key in loaders:
        check_name("role in loaders", key, _LOADERS)

    def predict(name: str, batches: Any, role: Role) -> Predictions:
        if isinstance(batches, Mapping | Tensor):
            batch = "x" if role == "ood" else "(x, y)"
            got = "a table" if isinstance(batches, Mapping) else f"a tensor {tuple(batches.shape)}: pass [{batch}]"
            raise ValueError(f'the loader of "{name}" must be an iterable of batches {batch}, got {got}')
        return predict_batches(model, batches, dataset=name, labelled=role != "ood", role=role)

    def predict_table(key: str, role: Role) -> list[Predictions]:
        table = loaders.get(key, {})
        if not isinstance(table, Mapping):
            raise ValueError(f'loaders["{key}"] must be a table of names and loaders, got {type(table).__name__}')
        return [predict(name, batches, role) for name, batches in table.items()]

    return ModelPredictions(
        test=predict("test", loaders["test"], "test"),
        validation=predict("validation", loaders["validation"], "validation") if "validation" in loaders else None,
        shift=predict_table("shift", "shifted"),
        ood=predict_table("ood", "ood"),
    )


def _check_sets(model: ModelPredictions) -> None:
    """Raise unless the sets are of one model, with logits that can be measured, each once."""
    test = model.test
    other_sets = [*filter(None, (model.validation, model.train)), *model.shift, *model.ood]
    for group in (model.shift, model.ood):
        repeated = {name for name, count in Counter(p.dataset for p in group).items() if count > 1}
        if repeated:
            names = ", ".join(name or "one without a name" for name in sorted(repeated))
            raise ValueError(f"each dataset must be given once, got {names} more than once")
    for predictions in (test, *other_sets):
        name = predictions.dataset or "a set"
        if broken := not_finite(predictions.logits) if len(predictions) else "none":
            raise ValueError(f"{name} must hold finite logits of some samples, got {broken}")
        if predictions.logits.shape[1] > 1 and look_like_probabilities(predictions.logits):
            raise ValueError(
                f"the logits of {name} look like probabilities, numbers >= 0 that sum to 1: "
                "pass what comes before the softmax, or call them probs (a key in files; rm.predictions.from_probs)"
            )
    for other in other_sets:
        runs = sorted({test.info.get("run", "")[:12], other.info.get("run", "")[:12]} - {""})
        classes = other.logits.shape[1], test.logits.shape[1]
        if len(runs) > 1 or classes[0] != classes[1]:
            got = f"those of runs {' and '.join(runs)}" if len(runs) > 1 else f"{classes[0]} and {classes[1]} classes"
            raise ValueError(f"{other.dataset} and {test.dataset} must be predicted by one model, got {got}")
    for other in model.ood:
        if same_samples(test, other):
            raise ValueError(
                f"an OOD set must hold other samples than the test set, got {other.dataset or 'one'} with the same "
                f"data or logits as {test.dataset or 'the test set'}"
            )


def _check_fitted_on(model: ModelPredictions) -> None:
    """Raise if the temperature or a score would be fitted on what is reported, or cannot be fitted."""
    reported = [model.test, *model.shift, *model.ood]
    if model.validation is not None:
        if model.temperature is not None:
            dataset = model.validation.dataset
            raise ValueError(f"temperature must be None where it is chosen on {dataset}, got {model.temperature}")
        check_held_out(model.validation, reported)
    if model.train is not None:
        for name, predictions in (("train", model.train), ("test", model.test)):
            if predictions.features is None:
                raise ValueError(f"{name} predictions must hold features where a train set is given, got none")
        check_held_out(model.train, reported, role="train")


def fit_temperature(posthoc: FittedPosthoc, validation: Predictions) -> float:
    """Return the temperature of the smallest validation ECE, for predictions that pass through `posthoc`.

    This is where every temperature of the tables is chosen: `evaluate` calls it for its validation set, and a study for
    a model trained on everything (`study.measure`) with the validation set of its companion, trained on 90 %.
    `posthoc.temperature` has the search: the whole grid where a temperature divides plain logits, from coarse to fine
    where each needs new samples.
    """
    check_held_out(validation)
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
    relative = []
    for key, row in templates.items():
        try:
            value = mean_corruption_error(errors[key], errors.get((reference, *key[1:]), {}))
        except ValueError:
            continue
        mean = replace(row, corruption=MEAN, severity=None, low=None, high=None, n=None)
        relative.append(replace(mean, metric=f"mce_relative_to_{reference}", value=value))
    return relative
