"""Measure predictions: one pass over the logits for what each sample needs, then values with their intervals as rows.

A table of a million rows of a thousand logits is mapped from its file; only a few numbers per row are kept of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from torch import Tensor

from regmixup.metrics.bootstrap import Bootstrap, Counts
from regmixup.metrics.detection import Ordered
from regmixup.metrics.fisher import ClassMoments
from regmixup.metrics.ordering import pieces_of
from regmixup.metrics.outcomes import NUM_BINS, Outcomes
from regmixup.metrics.registry import BINNED, CLASSIFICATION, DETECTION, resample_classification, resample_detection
from regmixup.metrics.scores import FittedScore, score_all
from regmixup.metrics.scores.logit_scores import Softmax
from regmixup.metrics.scores.registry import rows_of, scores_of_rows
from regmixup.metrics.selective import SELECTIVE, join_ood, resample_selective
from regmixup.metrics.threads import in_order
from regmixup.posthoc import as_given, probabilities
from regmixup.types import MEAN, Predictions, Quantity, Row

# Metrics of each of the many shifted sets; on the test set it is all of CLASSIFICATION.
ON_SHIFT = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "debiased_ece")
# Of the metrics of right and wrong predictions, those measured with OOD images among them; rows are named scod_*.
SCOD = ("aurc", "augrc")
_MOST_CLASSES = 100  # beyond these, resampling a calibration error per class costs more than all the rest
_PIECE = 2**18  # float64 numbers, a few tables of which stay in the cache


@dataclass(frozen=True)
class Version:
    """Predictions and a temperature that is still to divide their logits."""

    predictions: Predictions
    temperature: float = 1.0

    def whole(self) -> Predictions:
        """Return the predictions at that temperature."""
        return as_given(self.predictions, self.temperature)

    def rows(self, some: slice) -> Predictions:
        """Return the same for some of the samples."""
        return as_given(rows_of(self.predictions, some), self.temperature)


@dataclass(frozen=True)
class PerImage:
    """What a pass over the logits keeps of each sample: its outcomes, and scores (N,) by name."""

    outcomes: Outcomes
    scores: dict[str, Tensor] = field(default_factory=dict)


def per_image(version: Version, *, classwise: bool = False, scores: Sequence[str] = ()) -> PerImage:
    """Return outcomes with terms, in float64, and some scores of logits and of members, in one pass.

    classwise: give the outcomes `class_gaps`.
    """
    found: list[dict[str, Tensor]] = []

    def look(rows: slice) -> PerImage:
        part = version.rows(rows)
        softmax = Softmax(part.logits)
        probs = part.probs.double() if part.probs is not None else softmax.probs
        outcomes = Outcomes.of(probs, part.labels, terms=True, class_bins=NUM_BINS if classwise else 0)
        if part.probs is None:  # logits tell the logarithm of a probability that is 0 in float64
            outcomes = replace(outcomes, nll=softmax.nll(part.labels))
        return PerImage(outcomes, scores_of_rows(part, scores, softmax))

    def outcomes() -> Iterator[Outcomes]:
        logits = version.predictions.logits
        for part in in_order(look, pieces_of(logits, _PIECE), logits.device):
            found.append(part.scores)
            yield part.outcomes

    joined = Outcomes.joined(outcomes())
    return PerImage(joined, {name: torch.cat([part[name] for part in found]) for name in scores})


Resampled = dict[tuple[str, str], Tensor]


@lru_cache(maxsize=4)
def _counts(bootstrap: Bootstrap, total: int, stream: str) -> Counts:
    return bootstrap.counts(total, stream=stream)


@dataclass(frozen=True)
class Measure:
    """Values with their intervals. row: the template of every row; fitted: scores of features, by name.

    resampled: filled with the values of every row on the resamples, for whoever compares two models.
    """

    bootstrap: Bootstrap | None
    row: Row
    fitted: Mapping[str, FittedScore]
    resampled: dict[Quantity, Tensor] | None = None

    def counts(self, total: int, stream: str = "") -> Counts | None:
        """Return resamples of a set's images; sets of one size share them, as do shifted versions of test images."""
        return _counts(self.bootstrap, total, stream) if self.bootstrap is not None else None

    def interval(self, row: Row, values: Tensor | None) -> Row:
        if self.bootstrap is None or values is None:
            return row
        if self.resampled is not None:
            self.resampled[row.quantity] = values.cpu()
        values = values[~values.isnan()]  # a failure AUROC of a resample without errors
        if len(values) == 0:
            return row
        found = self.bootstrap.interval(values, about=row.value if row.metric in BINNED else None)
        if row.metric == "accuracy" and row.corruption != MEAN and row.n and row.value in (0, 1):
            # Every resample is like the images: the exact binomial bound instead (Clopper and Pearson, 1934).
            bound = ((1 - self.bootstrap.level) / 2) ** (1 / row.n)
            return replace(row, low=bound, high=1.0) if row.value else replace(row, low=0.0, high=1 - bound)
        return replace(row, low=found.low, high=found.high)

    def classification(
        self, versions: dict[str, Version], row: Row, metrics: tuple[str, ...], scores: Sequence[str] = ()
    ) -> tuple[list[Row], Resampled, PerImage]:
        """Return rows of some metrics of one dataset, without and with temperature; and their values on the resamples.

        The last part of the result is `per_image` without temperature, with these scores.
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
                quick = [name for name in metrics if name != "classwise_ece"]
                values = resample_classification(outcomes, None, counts, quick)
                if classwise and version.predictions.logits.shape[1] <= _MOST_CLASSES:
                    table = probabilities(version.whole()), version.predictions.labels
                    values |= resample_classification(*table, counts, ["classwise_ece"])
                resampled |= {(posthoc, name): value for name, value in values.items()}
            for name in metrics:
                value = CLASSIFICATION[name].value(outcomes)
                own = replace(row, posthoc=posthoc, metric=name, value=value, n=len(outcomes.correct))
                rows.append(self.interval(own, resampled.get((posthoc, name))))
        return rows, resampled, found["none"]

    def shift(self, shift: Iterable[dict[str, Version]]) -> list[Row]:
        """Return rows per (corruption, severity) and of the mean over the subsets, which for ECE is not pooling."""
        rows: list[Row] = []
        groups: dict[tuple[str, str, str], list[Row]] = {}
        totals: dict[tuple[str, str, str], Tensor] = {}
        for versions in shift:
            subset = versions["none"].predictions
            family, corruption, severity = _shift_name(subset.dataset)
            template = replace(self.row, dataset=shown_name(subset, family), corruption=corruption, severity=severity)
            found, resampled, _ = self.classification(versions, template, ON_SHIFT)
            rows += [*found, *fisher_rows(subset, template)]
            for r in found:
                group = (r.dataset, r.posthoc, r.metric)
                groups.setdefault(group, []).append(r)
                if (r.posthoc, r.metric) in resampled:
                    totals[group] = totals.get(group, 0) + resampled[r.posthoc, r.metric]
        for key, group_rows in groups.items():
            count = len(group_rows)
            value, n = sum(r.value for r in group_rows) / count, sum(r.n or 0 for r in group_rows)
            mean = replace(group_rows[0], corruption=MEAN, severity=None, value=value, n=n, low=None, high=None)
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
                own = replace(self.row, dataset=shown_name(ood), score=score, metric=name, value=value, n=n)
                rows.append(self.interval(own, resampled.get(name)))
        return rows


def fisher_rows(predictions: Predictions, row: Row) -> list[Row]:
    """Return the Fisher criterion, where features or their moments are stored and vary within some class."""
    try:
        moments = ClassMoments.stored(predictions)
        if moments is None:
            return []
        return [replace(row, metric="fisher_criterion", value=moments.criterion(), n=int(moments.count.sum()))]
    except ValueError as error:
        warnings.warn(f"no Fisher criterion for {predictions.dataset or 'the test set'}: {error}", stacklevel=4)
        return []


def _shift_name(dataset: str) -> tuple[str, str, int | None]:
    """Split "digits-c/contrast/3" into its parts; any other name is one corruption without severity."""
    parts = dataset.split("/")
    if len(parts) == 3 and parts[2].isdigit():
        return parts[0], parts[1], int(parts[2])
    return dataset, dataset, None


def shown_name(predictions: Predictions, name: str = "") -> str:
    """Return the name of a dataset in rows, which says if it was rebuilt rather than official."""
    return (name or predictions.dataset) + (" (rebuilt)" if predictions.info.get("rebuilt") == "true" else "")
