"""Predictions -> rows: every metric of one model, from what it said, with intervals."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from regmixup.metrics.bootstrap import Bootstrap, Counts
from regmixup.metrics.detection import Ordered
from regmixup.metrics.fisher import ClassMoments
from regmixup.metrics.outcomes import Outcomes
from regmixup.metrics.registry import (
    BINNED,
    CLASSIFICATION,
    DETECTION,
    resample_classification,
    resample_detection,
)
from regmixup.metrics.scores import FittedScore, available, fit_scores, score_all
from regmixup.metrics.selective import SELECTIVE, join_ood, resample_selective
from regmixup.posthoc import FittedPosthoc, TemperatureScaling, as_given, probabilities
from regmixup.posthoc.base import FitOn, check_held_out, same_samples
from regmixup.rows.class_subset import restrict_pair, restrict_predictions
from regmixup.rows.per_image import PerImage, Version, per_image
from regmixup.types import MEAN as MEAN
from regmixup.types import Predictions, Row, look_like_probabilities, not_finite

# What is measured on each of the many shifted sets; on the test set it is all of CLASSIFICATION.
ON_SHIFT = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "debiased_ece")
# Of the metrics of right and wrong predictions, what is measured with OOD images among them; rows are named scod_*.
SCOD = ("aurc", "augrc")
_MOST_CLASSES = 100  # beyond these, resampling a calibration error per class costs more than all the rest


def evaluate(
    test: Predictions,
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
) -> list[Row]:
    """Rows for one model.

    test: in-distribution test predictions. validation: where the temperature is chosen, by ECE; without it there are
    no temperature-scaled rows. train: train predictions with features, on which scores of features are fitted;
    without them there are only scores of logits, and of ensemble members.
    shift: predictions for shifted versions of the test set, named "<family>/<corruption>/<severity>"; each gets its
    own rows, and their plain mean over the subsets is added with corruption "mean" (but of the Fisher criterion).
    ood: out-of-distribution sets, scored without temperature by every score.
    posthoc: applied to all predictions first; the temperature then divides the logits of every sample it draws.
    temperature: one that was chosen elsewhere, as by `fit_temperature` on a companion model's validation predictions,
    instead of `validation`.
    class_subset: for sets that cover some of the classes (ImageNet-A, -R, -O), compare only the logits of these, and
    for OOD sets only the test images of these classes; the dataset's name then says so. False compares all.
    bootstrap: how `low` and `high` of each row are found; None leaves them out. Shifted versions of the test images
    are resampled together with them.
    fit_on: a validation or train set that is one of the test, shifted or OOD sets is refused unless this says "a test
    set, knowingly".
    row: a template whose study, run, method, ... every row carries.
    """
    _check_sets(test, [p for p in (validation, train) if p is not None], shift, ood)
    if validation is not None and temperature is not None:
        raise ValueError(f"temperature must be None where it is chosen on {validation.dataset}, got {temperature}")
    if validation is not None:
        check_held_out(validation, [test, *shift, *ood], fit_on=fit_on)
    if train is not None:
        _check_train(train, test)
        check_held_out(train, [test, *shift, *ood], fit_on=fit_on, role="train")
    posthoc = posthoc if posthoc is not None else as_given
    if validation is not None:
        temperature = fit_temperature(posthoc, validation, fit_on=fit_on)
    measure = _Measure(bootstrap, row if row is not None else Row(), fit_scores(train))

    def restricted(predictions: Predictions) -> bool:
        return class_subset and "class_subset" in predictions.info

    def versions(predictions: Predictions, unscaled: Predictions | None = None) -> dict[str, Version]:
        """Without and with temperature."""
        unscaled = unscaled if unscaled is not None else posthoc(predictions)
        if temperature is None:
            found = {"none": Version(unscaled)}
        elif posthoc is as_given and not restricted(predictions):
            found = {"none": Version(unscaled), "temperature": Version(unscaled, temperature)}
        else:
            found = {"none": Version(unscaled), "temperature": Version(posthoc(predictions, temperature))}
        if restricted(predictions):
            return {name: Version(restrict_predictions(version.predictions)) for name, version in found.items()}
        return found

    known = posthoc(test)
    subject = versions(test, known)
    named = replace(measure.row, dataset=_named(subject["none"].predictions))
    of_logits = available(subject["none"].predictions)
    rows, _, images = measure.classification(subject, named, tuple(CLASSIFICATION), of_logits)
    if temperature is not None:
        rows.append(replace(named, posthoc="temperature", metric="temperature", value=temperature))
    prior_variance = getattr(posthoc, "prior_variance", None)
    if prior_variance is not None:
        rows.append(replace(named, metric="prior_variance", value=prior_variance))
    rows += _fisher(test, named)
    if restricted(test):
        id_scores, correct = score_all(known, measure.fitted), _correct(known)
    else:
        id_scores = images.scores | score_all(known, measure.fitted, names=measure.fitted)
        correct = images.outcomes.correct
    rows += measure.selective(id_scores | images.scores, images.outcomes.correct, named)
    rows += measure.shift(map(versions, shift))
    ordered = {name: Ordered(score) for name, score in id_scores.items()} if ood else {}
    for other in map(posthoc, ood):
        if restricted(other):
            own, other = restrict_pair(known, other)
            rows += measure.detection(score_all(own, measure.fitted), _correct(own), other)
        else:
            rows += measure.detection(id_scores, correct, other, ordered)
    return rows


def _correct(predictions: Predictions) -> Tensor:
    return probabilities(predictions).argmax(dim=1) == predictions.labels


def _fisher(predictions: Predictions, row: Row) -> list[Row]:
    """The Fisher criterion, where features or their moments are stored and the features vary within some class."""
    try:
        moments = ClassMoments.stored(predictions)
        if moments is None:
            return []
        return [replace(row, metric="fisher_criterion", value=moments.criterion(), n=int(moments.count.sum()))]
    except ValueError as error:
        warnings.warn(f"no Fisher criterion for {predictions.dataset or 'the test set'}: {error}", stacklevel=3)
        return []


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
        if one.logits.shape[1] > 1 and look_like_probabilities(one.logits):
            raise ValueError(
                f"the logits of {one.dataset or 'a set'} look like probabilities, rows of numbers >= 0 that sum to 1: "
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


def _check_train(train: Predictions, test: Predictions) -> None:
    for name, given in (("train", train), ("test", test)):
        if given.features is None:
            raise ValueError(f"{name} predictions must hold features where a train set is given, got none")


def fit_temperature(posthoc: FittedPosthoc, validation: Predictions, *, fit_on: FitOn = "validation") -> float:
    """The temperature of the smallest validation ECE, for predictions that pass through `posthoc`.

    The whole grid where a temperature divides plain logits; from coarse to fine where each costs new samples.
    """
    check_held_out(validation, fit_on=fit_on)
    unscaled = posthoc(validation)
    if unscaled.probs is None:
        return TemperatureScaling().fit(unscaled.logits, unscaled.labels).temperature
    fitted = TemperatureScaling().fit_predictive(lambda t: probabilities(posthoc(validation, t)), validation.labels)
    return fitted.temperature


Resampled = dict[tuple[str, str], Tensor]


@lru_cache(maxsize=4)
def _counts(bootstrap: Bootstrap, total: int, stream: str) -> Counts:
    return bootstrap.counts(total, stream=stream)


@dataclass(frozen=True)
class _Measure:
    """Values with their intervals. row: the template of every row; fitted: scores of features, by name."""

    bootstrap: Bootstrap | None
    row: Row
    fitted: Mapping[str, FittedScore]

    def counts(self, total: int, stream: str = "") -> Counts | None:
        """Resamples of a set's images. Sets of one size share them: the shifted versions are of the test images."""
        return _counts(self.bootstrap, total, stream) if self.bootstrap is not None else None

    def interval(self, row: Row, values: Tensor | None) -> Row:
        if self.bootstrap is None or values is None:
            return row
        values = values[~values.isnan()]  # a failure AUROC of a resample without errors
        if len(values) == 0:
            return row
        found = self.bootstrap.interval(values, about=row.value if row.metric in BINNED else None)
        return replace(row, low=found.low, high=found.high)

    def classification(
        self, versions: dict[str, Version], row: Row, metrics: tuple[str, ...], scores: Sequence[str] = ()
    ) -> tuple[list[Row], Resampled, PerImage]:
        """Some metrics of one dataset, without and with temperature; and their values on the resamples.

        The last is what was found of every image without temperature, with these scores.
        """
        rows: list[Row] = []
        resampled: Resampled = {}
        found: dict[str, PerImage] = {}
        classwise = "classwise_ece" in metrics
        for posthoc, version in versions.items():
            found[posthoc] = per_image(version, classwise=classwise, scores=scores if posthoc == "none" else ())
            outcomes = found[posthoc].outcomes
            counts = self.counts(len(outcomes.correct))
            if counts is not None:
                table: tuple[Tensor | Outcomes, Tensor | None] = outcomes, None
                quick = [name for name in metrics if name != "classwise_ece"]
                if classwise and version.predictions.logits.shape[1] <= _MOST_CLASSES:
                    quick, table = list(metrics), (probabilities(version.whole()), version.predictions.labels)
                values = resample_classification(*table, counts, quick)
                resampled |= {(posthoc, name): values[name] for name in quick}
            for name in metrics:
                value = CLASSIFICATION[name].value(outcomes)
                own = replace(row, posthoc=posthoc, metric=name, value=value, n=len(outcomes.correct))
                rows.append(self.interval(own, resampled.get((posthoc, name))))
        return rows, resampled, found["none"]

    def shift(self, shift: Iterable[dict[str, Version]]) -> list[Row]:
        """Rows per (corruption, severity), and the mean over the subsets: for ECE that is not the same as pooling."""
        rows: list[Row] = []
        groups: dict[tuple[str, str, str], list[Row]] = {}
        totals: dict[tuple[str, str, str], Tensor] = {}
        for versions in shift:
            subset = versions["none"].predictions
            family, corruption, severity = _shift_name(subset.dataset)
            template = replace(self.row, dataset=_named(subset, family), corruption=corruption, severity=severity)
            found, resampled, _ = self.classification(versions, template, ON_SHIFT)
            rows += [*found, *_fisher(subset, template)]
            for r in found:
                group = (r.dataset, r.posthoc, r.metric)
                groups.setdefault(group, []).append(r)
                if (r.posthoc, r.metric) in resampled:
                    totals[group] = totals.get(group, 0) + resampled[r.posthoc, r.metric]
        for key, group_rows in groups.items():
            count = len(group_rows)
            mean = replace(
                group_rows[0],
                corruption=MEAN,
                severity=None,
                value=sum(r.value for r in group_rows) / count,
                n=sum(r.n or 0 for r in group_rows),
                low=None,
                high=None,
            )
            rows.append(self.interval(mean, totals[key] / count if key in totals else None))
        return rows

    def selective(self, scores: Mapping[str, Tensor], correct: Tensor, row: Row) -> list[Row]:
        """Return how well each score orders right before wrong predictions, of which it needs both for an AUROC."""
        rows = []
        counts = self.counts(len(correct))
        metrics = [name for name in SELECTIVE if name != "failure_auroc" or 0 < int(correct.sum()) < len(correct)]
        for score, values in scores.items():
            resampled = resample_selective(values, correct, counts) if counts is not None else {}
            for name in metrics:
                own = replace(row, score=score, metric=name, value=SELECTIVE[name](values, correct), n=len(correct))
                rows.append(self.interval(own, resampled.get(name)))
        return rows

    def detection(
        self,
        id_scores: Mapping[str, Tensor],
        correct: Tensor,
        ood: Predictions,
        ordered: Mapping[str, Ordered] | None = None,
    ) -> list[Row]:
        """Return every detection metric for every score that both sides have, and SCOD on all images of both.

        ordered: the id scores, sorted before.
        """
        rows = []
        ood_scores = score_all(ood, self.fitted)
        id_counts, ood_counts = self.counts(len(correct)), self.counts(len(ood), stream=ood.dataset or "ood")
        for score in (name for name in id_scores if name in ood_scores):
            pair = id_scores[score], ood_scores[score]
            sides = ordered[score] if ordered is not None else Ordered(pair[0]), Ordered(pair[1])
            joined = join_ood(pair[0], correct, pair[1])
            found = {name: metric.value(*sides) for name, metric in DETECTION.items()}
            found |= {f"scod_{name}": SELECTIVE[name](*joined) for name in SCOD}
            resampled: dict[str, Tensor] = {}
            if id_counts is not None and ood_counts is not None:
                resampled = resample_detection(*pair, id_counts, ood_counts, DETECTION)
                both = Counts(torch.cat([id_counts.values, ood_counts.values], dim=1))
                resampled |= {f"scod_{name}": values for name, values in resample_selective(*joined, both).items()}
            for name, value in found.items():
                n = len(ood) if name in DETECTION else len(correct) + len(ood)
                own = replace(self.row, dataset=_named(ood), score=score, metric=name, value=value, n=n)
                rows.append(self.interval(own, resampled.get(name)))
        return rows


def _shift_name(dataset: str) -> tuple[str, str, int | None]:
    """ "digits-c/contrast/3" -> its parts; any other name is one corruption without severity."""
    parts = dataset.split("/")
    if len(parts) == 3 and parts[2].isdigit():
        return parts[0], parts[1], int(parts[2])
    return dataset, dataset, None


def _named(predictions: Predictions, name: str = "") -> str:
    """A dataset's name, saying whether it was rebuilt rather than official."""
    return (name or predictions.dataset) + (" (rebuilt)" if predictions.info.get("rebuilt") == "true" else "")
