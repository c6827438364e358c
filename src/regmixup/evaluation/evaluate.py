"""Evaluate one model: predictions, or a module and its loaders, to rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from regmixup.config import Positive, check_fields
from regmixup.evaluation.class_subset import restrict_predictions
from regmixup.evaluation.metric_rows import RowBuilder, ScaledPredictions, fisher_rows, shown_name
from regmixup.evaluation.rows import Rows
from regmixup.evaluation.set_scores import score_sets
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.scores import fit_scores
from regmixup.names import check_name, warn_user
from regmixup.posthoc import FittedPosthoc, TemperatureScaling, as_given, probabilities
from regmixup.posthoc.base import check_held_out, share_samples
from regmixup.predictions.forward import predict_batches
from regmixup.types import Predictions, Role, Row, check_probs, not_finite, refuse_probs, with_known_scale

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
    temperature: Positive | None = None

    def __post_init__(self) -> None:
        for name in ("shift", "ood"):
            if isinstance(sets := getattr(self, name), Predictions | Mapping):
                raise ValueError(f"{name} must be a list of Predictions, got {sets!r:.80}")
        check_fields(self)


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
    bootstrap: Bootstrap | None = Bootstrap(),  # noqa: B008 a frozen value
    row: Row | None = None,
) -> Rows:
    """Return all rows of one model, from its test predictions, or from the model itself and its loaders.

    They are a list, which prints as a table and has `.to_pandas()`.
    subject: in-distribution test `Predictions`, or an `nn.Module` from images, or other inputs (N, ...), to logits or
    an output that holds them: a dict with "logits", an object with `.logits`, a tuple that begins with them.
    loaders: for a module, {"test": loader, "validation": loader, "shift": {name: loader}, "ood": {name: loader}}; all
    but "test" may be left out. A loader is any iterable of (x, y); OOD labels are ignored, so there x alone suffices.
    They take the place of `validation`, `shift` and `ood`.
    validation: where the temperature is chosen, by ECE; without it there are no temperature-scaled rows.
    train: train predictions with features, to fit scores of features on; without them these scores are left out.
    shift: predictions for shifted versions of the test set, named "<family>/<corruption>/<severity>"; each gets its
    own rows, and their plain mean over the subsets is added with corruption "mean" (except the Fisher criterion's).
    ood: out-of-distribution sets, scored without temperature by every score.
    groups: names of OOD sets by the name of a group, {"near": ["cifar100/test", ...], "far": [...]}: adds rows with the
    plain mean over the sets of each, whose dataset is the group's name.
    posthoc: applied to all predictions first; the temperature then divides the logits of every sample it draws.
    temperature: instead of `validation`, one chosen elsewhere, as by `fit_temperature` on those of a companion model.
    bootstrap: how `low` and `high` of each row are found; None leaves them out. Shifted versions of the test images
    are resampled together with them.
    row: a template whose study, run, method, ... every row carries.

    Of sets that cover some of the classes (ImageNet-A, -R, -O) only the logits of these are compared, and OOD sets of
    this kind only with the test images of these classes; the dataset's name in rows then says so.

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
    elif isinstance(subject, nn.Module):
        if validation is not None or shift or ood:
            raise ValueError("validation, shift and ood must be left out where a module is given: pass their loaders")
        sets = _predict_loaders(subject, loaders)
    else:
        raise ValueError(f"subject must be Predictions or an nn.Module, got {type(subject).__name__}")
    model = replace(sets, train=train, posthoc=posthoc, temperature=temperature)
    return measure_model(model, groups=groups, bootstrap=bootstrap, row=row)


def measure_model(
    model: ModelPredictions,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    bootstrap: Bootstrap | None = Bootstrap(),  # noqa: B008 a frozen value
    row: Row | None = None,
) -> Rows:
    """Return all rows of one model, from its predictions; the other arguments are those of `evaluate`."""
    _check_names(model, groups or {})
    _check_predictions(model)
    _check_fitted_on(model)
    _warn_of(model.test)
    posthoc, temperature = model.posthoc or as_given, model.temperature
    if model.validation is not None:
        temperature = fit_temperature(posthoc, model.validation)
    builder = RowBuilder(bootstrap, row or Row())

    def versions(predictions: Predictions, unscaled: Predictions) -> dict[str, ScaledPredictions]:
        """Return a set without and with temperature; of one that covers some of the classes, their logits alone."""
        by_posthoc = {"none": ScaledPredictions(restrict_predictions(unscaled))}
        if temperature is not None and unscaled.probs is None:
            # The pass over the logits divides them; the NLL is then finite where a probability is 0 in float64.
            by_posthoc["temperature"] = by_posthoc["none"]._replace(temperature=temperature)
        elif temperature is not None:
            by_posthoc["temperature"] = ScaledPredictions(restrict_predictions(posthoc(predictions, temperature)))
        return by_posthoc

    test = with_known_scale(model.test)
    known = posthoc(test)
    of_test = versions(test, known)
    test_row = replace(builder.template, dataset=shown_name(of_test["none"].predictions))
    rows, outcomes = builder.classification(of_test, test_row)
    if temperature is not None:
        rows.append(replace(test_row, posthoc="temperature", metric="temperature", value=temperature))
    prior_variance = getattr(posthoc, "prior_variance", None)
    if prior_variance is not None:
        rows.append(replace(test_row, metric="prior_variance", value=prior_variance))
    rows += fisher_rows(test, test_row)
    ood_sets = (posthoc(with_known_scale(ood)) for ood in model.ood)
    scores = score_sets(known, ood_sets, fit_scores(model.train))
    rows += builder.selective(scores.test, outcomes.correct, test_row)
    rows += builder.shift(versions(shifted, posthoc(shifted)) for shifted in model.shift)
    detected: dict[str, list[Row]] = {}
    for ood in model.ood:
        pair = scores.pairs[ood.dataset]
        detected[ood.dataset] = builder.detection(pair, shown_name(ood, pair.dataset))
        rows += detected[ood.dataset]
    return Rows(rows + builder.group_means(detected, groups or {}), builder.resampled, scores)


def _predict_loaders(model: nn.Module, loaders: Mapping[str, Any] | None) -> ModelPredictions:
    """Predict the batches of all loaders, as `evaluate` describes them."""
    if not isinstance(loaders, Mapping) or "test" not in loaders:
        got = f"the keys {list(loaders)}" if isinstance(loaders, Mapping) else type(loaders).__name__
        raise ValueError(f'loaders must be a table with at least "test", such as {{"test": loader}}, got {got}')
    for key in loaders:
        check_name("role in loaders", key, _LOADERS)

    def predict(name: str, batches: Any, role: Role) -> Predictions:
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


def _check_names(model: ModelPredictions, groups: Mapping[str, Sequence[str]]) -> None:
    """Raise unless names tell the sets apart, and groups name OOD sets."""
    for sets in (model.shift, model.ood):
        for name, count in Counter(predictions.dataset for predictions in sets).items():
            if count > 1:
                raise ValueError(f"each dataset must be given once, got {name or 'one without a name'} {count} times")
    names = [predictions.dataset for predictions in model.ood]
    if model.test.dataset and model.test.dataset in names:
        remedy = "change dataset=, the name of a file, or --names"
        raise ValueError(f"an OOD set must have another name than the test set, got {model.test.dataset!r}: {remedy}")
    if not isinstance(groups, Mapping):
        raise ValueError(f"groups must hold names of OOD sets by the name of a group, got {groups!r:.80}")
    for group, datasets in groups.items():
        listed = [*datasets] if isinstance(datasets, Collection) and not isinstance(datasets, str) else []
        if not listed or len({*listed}) < len(listed) or not {*names} >= {*listed}:
            contract = f"must list some of the OOD sets ({', '.join(names) or 'none'}), each once"
            raise ValueError(f"group {group!r} {contract}, got {datasets!r}")
        if group == model.test.dataset or (group in names and listed != [group]):
            raise ValueError(f"group {group!r} must have another name than the set {group!r}, got {datasets!r}")


def _check_predictions(model: ModelPredictions) -> None:
    """Raise unless all sets are of one model, with logits that can be measured, and no OOD set is the test set."""
    test = model.test
    for predictions in (test, *filter(None, (model.validation, model.train)), *model.shift, *model.ood):
        name = predictions.dataset or "a set"
        broken = not_finite(predictions.logits) if len(predictions) else "none"
        if broken:
            raise ValueError(f"{name} must hold finite logits of some samples, got {broken}")
        refuse_probs(predictions.logits, f"the logits of {name}")
        if predictions.probs is not None:
            check_probs(predictions.probs, f"probs of {name}")
        runs = sorted({test.info.get("run", "")[:12], predictions.info.get("run", "")[:12]} - {""})
        classes = predictions.logits.shape[1], test.logits.shape[1]
        if len(runs) > 1 or classes[0] != classes[1]:
            got = f"those of runs {' and '.join(runs)}" if len(runs) > 1 else f"{classes[0]} and {classes[1]} classes"
            raise ValueError(f"{name} and {test.dataset} must be predicted by one model, got {got}")
    for ood in model.ood:
        if share_samples(test, ood):
            raise ValueError(
                f"an OOD set must hold other samples than the test set, got {ood.dataset or 'one'} with the same "
                f"data or logits as {test.dataset or 'the test set'}"
            )


def _warn_of(test: Predictions) -> None:
    """Warn of what is measured, but hardly meant: train images, and outputs of a sigmoid in place of logits."""
    if test.role == "train":
        warn_user(f"{test.dataset} are train images of the model, so these are no test results")
    # Logits leave [0, 1] in the first rows, so that no large table is read; those that are all alike say nothing.
    inside = all(bool(((part >= 0) & (part <= 1)).all()) for part in test.logits.split(2**12))
    if inside and float(test.logits.amin()) < float(test.logits.amax()):
        warn_user(
            f"the logits of {test.dataset or 'the test set'} lie in [0, 1], as the outputs of a sigmoid do, and are "
            "measured as logits: if they are such outputs, pass what comes before the sigmoid",
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

    Every temperature of the tables is chosen here, that of a model trained on all images on the validation set of its
    companion. Deployed models have another one: `deployment.calibration.fit_temperature`.
    """
    check_held_out(validation)
    unscaled = posthoc(validation)
    if unscaled.probs is None:
        return TemperatureScaling().fit(unscaled.logits, unscaled.labels).temperature
    fitted = TemperatureScaling().fit_predictive(lambda t: probabilities(posthoc(validation, t)), validation.labels)
    return fitted.temperature
