"""Predictions -> rows: every metric of one model, from what it said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import Tensor

from regmixup.evaluation.calibration import accuracy, adaptive_ece, brier, ece, nll
from regmixup.evaluation.class_subset import restrict_pair, restrict_predictions
from regmixup.evaluation.detection import aupr, auroc, fpr_at_tpr
from regmixup.evaluation.scores import score_all
from regmixup.posthoc import FittedPosthoc, FittedTemperature, TemperatureScaling, as_given, probabilities
from regmixup.types import Predictions, Row

CLASSIFICATION = {"accuracy": accuracy, "nll": nll, "brier": brier, "ece": ece, "adaptive_ece": adaptive_ece}
DETECTION = {"auroc": auroc, "aupr": aupr, "fpr_at_tpr": fpr_at_tpr}
MEAN = "mean"


def evaluate(
    test: Predictions,
    *,
    validation: Predictions | None = None,
    shift: Sequence[Predictions] = (),
    ood: Sequence[Predictions] = (),
    posthoc: FittedPosthoc | None = None,
    class_subset: bool = True,
    row: Row | None = None,
) -> list[Row]:
    """Rows for one model.

    test: in-distribution test predictions. validation: where the temperature is chosen, by ECE; without it there are
    no temperature-scaled rows. shift: predictions for shifted versions of the test set, named
    "<family>/<corruption>/<severity>"; each gets its own rows, and their plain mean over the subsets is added with
    corruption "mean". ood: out-of-distribution sets, scored without temperature by every score.
    posthoc: applied to all predictions first; the temperature then divides the logits of every sample it draws.
    class_subset: for sets that cover some of the classes (ImageNet-A, -R, -O), compare only the logits of these, and
    for OOD sets only the test images of these classes; the dataset's name then says so. False compares all.
    row: a template whose study, run, method, ... every row carries.
    """
    row = row if row is not None else Row()
    for group in (shift, ood):
        repeated = {p.dataset for p in group if sum(q.dataset == p.dataset for q in group) > 1}
        if repeated:
            raise ValueError(f"each dataset must be given once, got {', '.join(sorted(repeated))} more than once")
    for other in (p for p in (validation, *shift, *ood) if p is not None):
        if other.logits.shape[1] != test.logits.shape[1]:
            raise ValueError(
                f"{other.dataset} has {other.logits.shape[1]} classes, {test.dataset} has {test.logits.shape[1]}: "
                "they cannot come from one model"
            )
    posthoc = posthoc if posthoc is not None else as_given
    scaling = _fit_temperature(posthoc, validation) if validation is not None else None

    def versions(predictions: Predictions) -> dict[str, Predictions]:
        """Without and with temperature."""
        found = {"none": posthoc(predictions)}
        if scaling is not None:
            found["temperature"] = posthoc(predictions, scaling.temperature)
        return found

    def narrowed(found: dict[str, Predictions]) -> dict[str, Predictions]:
        return {name: restrict_predictions(p) for name, p in found.items()} if class_subset else found

    known = versions(test)
    subject = narrowed(known)
    named = replace(row, dataset=_named(subject["none"]))
    rows = _classification(subject, named)
    if scaling is not None:
        rows.append(replace(named, posthoc="temperature", metric="temperature", value=scaling.temperature))
    rows += _shift((narrowed(versions(p)) for p in shift), row)
    id_scores = score_all(known["none"])
    for other in map(posthoc, ood):
        if class_subset and "class_subset" in other.info:
            id_part, ood_part = restrict_pair(known["none"], other)
            rows += _detection(score_all(id_part), ood_part, row)
        else:
            rows += _detection(id_scores, other, row)
    return rows


def _fit_temperature(posthoc: FittedPosthoc, validation: Predictions) -> FittedTemperature:
    """The whole grid where a temperature divides plain logits; from coarse to fine where each costs new samples."""
    unscaled = posthoc(validation)
    if unscaled.probs is None:
        return TemperatureScaling().fit(unscaled.logits, unscaled.labels)
    return TemperatureScaling().fit_predictive(lambda t: probabilities(posthoc(validation, t)), validation.labels)


def _classification(versions: dict[str, Predictions], row: Row) -> list[Row]:
    """All classification metrics of one dataset, without and with temperature."""
    rows = []
    for posthoc, predictions in versions.items():
        probs = probabilities(predictions)
        for name, metric in CLASSIFICATION.items():
            value = metric(probs, predictions.labels)
            rows.append(replace(row, posthoc=posthoc, metric=name, value=value, n=len(predictions)))
    return rows


def _shift(shift: Iterable[dict[str, Predictions]], row: Row) -> list[Row]:
    """Rows per (corruption, severity), and the mean over the subsets: for ECE that is not the same as pooling."""
    rows: list[Row] = []
    for versions in shift:
        subset = versions["none"]
        family, corruption, severity = _shift_name(subset.dataset)
        template = replace(row, dataset=_named(subset, family), corruption=corruption, severity=severity)
        rows += _classification(versions, template)
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for r in rows:
        groups.setdefault((r.dataset, r.posthoc, r.metric), []).append(r)
    means = [
        replace(
            group[0],
            corruption=MEAN,
            severity=None,
            value=sum(r.value for r in group) / len(group),
            n=sum(r.n or 0 for r in group),
        )
        for group in groups.values()
    ]
    return rows + means


def _shift_name(dataset: str) -> tuple[str, str, int | None]:
    """ "digits-c/contrast/3" -> its parts; any other name is one corruption without severity."""
    parts = dataset.split("/")
    if len(parts) == 3 and parts[2].isdigit():
        return parts[0], parts[1], int(parts[2])
    return dataset, dataset, None


def _detection(id_scores: dict[str, Tensor], ood: Predictions, row: Row) -> list[Row]:
    """Every detection metric for every score."""
    rows = []
    for name, ood_scores in score_all(ood).items():
        for metric, function in DETECTION.items():
            value = function(id_scores[name], ood_scores)
            rows.append(replace(row, dataset=_named(ood), score=name, metric=metric, value=value, n=len(ood)))
    return rows


def _named(predictions: Predictions, name: str = "") -> str:
    """A dataset's name, saying whether it was rebuilt rather than official."""
    return (name or predictions.dataset) + (" (rebuilt)" if predictions.info.get("rebuilt") == "true" else "")
