"""Measure predictions: read the logits in pieces for what each sample needs, then values with their intervals as rows.

A table of a million samples of a thousand logits is mapped from its file; only a few numbers per sample are kept of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regmixup.evaluation.set_scores import PairScores
from regmixup.metrics.bootstrap import Bootstrap, resampled
from regmixup.metrics.calibration import BINNED, CLASSIFICATION
from regmixup.metrics.detection import DETECTION, ScorePair
from regmixup.metrics.fisher import ClassMoments
from regmixup.metrics.outcomes import Outcomes
from regmixup.metrics.pieces import map_pieces, precise, select_samples
from regmixup.metrics.scores.logit_scores import Softmax
from regmixup.metrics.selective import SELECTIVE
from regmixup.names import warn_user
from regmixup.posthoc import as_given, probabilities
from regmixup.types import MEAN, Predictions, Quantity, Row

_PIECE = 2**18  # float64 numbers, a few tables of which stay in the cache


class ScaledPredictions(NamedTuple):
    """Predictions and a temperature that is still to divide their logits."""

    predictions: Predictions
    temperature: float = 1.0


def read_outcomes(scaled: ScaledPredictions) -> Outcomes:
    """Return outcomes with terms, in float64."""

    def read(samples: slice) -> Outcomes:
        part = select_samples(scaled.predictions, samples)
        if part.probs is not None:
            return Outcomes.of(probabilities(as_given(part, scaled.temperature)), part.labels, terms=True)
        softmax = Softmax(precise(part.logits) / scaled.temperature)
        outcomes = Outcomes.of(softmax.probs, part.labels, terms=True)
        return replace(outcomes, nll=softmax.nll(part.labels))  # also of a probability that is 0 in float64

    return Outcomes.joined(map_pieces(read, scaled.predictions.logits, _PIECE))


@lru_cache(maxsize=4)
def _counts(bootstrap: Bootstrap, total: int, stream: str, device: torch.device) -> Tensor:
    return bootstrap.counts(total, stream=stream).to(device)


@dataclass(frozen=True)
class RowBuilder:
    """Rows of values with their intervals. template: the fields that all rows share.

    resampled: the values of every row so far on the resamples, (R,) by quantity.
    """

    bootstrap: Bootstrap | None
    template: Row
    resampled: dict[Quantity, Tensor] = field(default_factory=dict)

    def counts(self, total: int, device: torch.device, stream: str = "") -> list[Tensor]:
        """Return a list of one table: resamples of a set's images; an empty list without a bootstrap.

        Sets of one size share them, as do shifted versions of test images.
        """
        return [_counts(self.bootstrap, total, stream, device)] if self.bootstrap is not None else []

    def metric_rows(
        self, sample: Any, metrics: Mapping[str, Callable[..., Any]], template: Row, counts: Sequence[Tensor]
    ) -> list[Row]:
        """Return a row for each metric of a sample, with its interval where there are counts of resamples."""
        values = resampled(metrics, sample.weighted, *counts) if counts else {}
        return [
            self.with_interval(replace(template, metric=name, value=metric(sample)), values.get(name))
            for name, metric in metrics.items()
        ]

    def with_interval(self, row: Row, values: Tensor | None) -> Row:
        """Return the row with the interval of its resampled values (R,), which are kept; None leaves it as it is."""
        if self.bootstrap is None or values is None:
            return row
        self.resampled[row.quantity] = values.cpu()
        values = values[~values.isnan()]  # a failure AUROC of a resample without errors
        if len(values) == 0:
            return row
        if row.metric == "accuracy" and row.corruption != MEAN and row.n and row.value in (0, 1):
            # Every resample is like the images: the exact binomial bound instead (Clopper and Pearson, 1934).
            bound = ((1 - self.bootstrap.level) / 2) ** (1 / row.n)
            return replace(row, low=bound, high=1.0) if row.value else replace(row, low=0.0, high=1 - bound)
        interval = self.bootstrap.interval(values, about=row.value if row.metric in BINNED else None)
        return replace(row, low=interval.low, high=interval.high)

    def mean_row(self, quantity: Quantity, rows: Sequence[Row]) -> Row:
        """Return a quantity that is the plain mean of rows, with the interval of the mean on joint resamples."""
        value, n = sum(row.value for row in rows) / len(rows), sum(row.n or 0 for row in rows)
        mean = replace(rows[0], value=value, n=n, low=None, high=None, **quantity._asdict())
        values = [self.resampled[row.quantity] for row in rows if row.quantity in self.resampled]
        return self.with_interval(mean, torch.stack(values).mean(dim=0) if len(values) == len(rows) else None)

    def classification(self, versions: Mapping[str, ScaledPredictions], template: Row) -> tuple[list[Row], Outcomes]:
        """Return the rows of one dataset, without and with temperature, and the outcomes without."""
        rows: list[Row] = []
        outcomes: dict[str, Outcomes] = {}
        for posthoc, scaled in versions.items():
            sample = outcomes[posthoc] = read_outcomes(scaled)
            named = replace(template, posthoc=posthoc, n=len(sample.correct))
            counts = self.counts(len(sample.correct), sample.correct.device)
            rows += self.metric_rows(sample, CLASSIFICATION, named, counts)
        return rows, outcomes["none"]

    def shift(self, shift: Iterable[Mapping[str, ScaledPredictions]]) -> list[Row]:
        """Return rows per (corruption, severity) and of the mean over the subsets, which for ECE is not pooling."""
        rows: list[Row] = []
        subsets_of: dict[Quantity, list[Row]] = {}
        for versions in shift:
            subset = versions["none"].predictions
            family, corruption, severity = _shift_name(subset.dataset)
            shown = shown_name(subset, family)
            template = replace(self.template, dataset=shown, corruption=corruption, severity=severity)
            measured, _ = self.classification(versions, template)
            rows += [*measured, *fisher_rows(subset, template)]
            for row in measured:
                subsets_of.setdefault(row.quantity._replace(corruption=MEAN, severity=None), []).append(row)
        return rows + [self.mean_row(quantity, subsets) for quantity, subsets in subsets_of.items()]

    def selective(self, scores: Mapping[str, Tensor], correct: Tensor, template: Row) -> list[Row]:
        """Return how well each score orders right before wrong predictions, of which it needs both for an AUROC."""
        metrics = dict(SELECTIVE)
        if not 0 < int(correct.sum()) < len(correct):
            del metrics["failure_auroc"]
        # The resamples of right and of wrong predictions, as `ScorePair.of_errors` has their scores.
        counts = [drawn[:, side] for drawn in self.counts(len(correct), correct.device) for side in (correct, ~correct)]
        rows = []
        for score, values in scores.items():
            named = replace(template, score=score, n=len(correct))
            rows += self.metric_rows(ScorePair.of_errors(values, correct), metrics, named, counts)
        return rows

    def detection(self, pair: PairScores, name: str) -> list[Row]:
        """Return every detection metric for every score that both sides have. name: of the OOD set in the rows."""
        inside, outside = next(iter(pair.inside.values())), next(iter(pair.outside.values()))
        counts = self.counts(len(inside), inside.device)
        counts += self.counts(len(outside), outside.device, stream=pair.dataset or "ood")
        rows = []
        for score in pair.inside:
            if score in pair.outside:
                row = replace(self.template, dataset=name, score=score, n=len(outside))
                rows += self.metric_rows(ScorePair.of(pair.inside[score], pair.outside[score]), DETECTION, row, counts)
        return rows

    def group_means(self, detected: Mapping[str, Sequence[Row]], groups: Mapping[str, Sequence[str]]) -> list[Row]:
        """Return the mean over the OOD sets of each group, of every score that all have; the group is the dataset.

        detected: the rows of `detection` by set. groups: names of sets by the name of the group.
        """
        means = []
        for group, datasets in groups.items():
            rows_of: dict[Quantity, list[Row]] = {}
            for dataset in datasets:
                for row in detected[dataset]:
                    rows_of.setdefault(row.quantity._replace(dataset=group), []).append(row)
            for quantity, rows in rows_of.items():
                if len(rows) == len(datasets):
                    means.append(self.mean_row(quantity, rows))
        return means


def fisher_rows(predictions: Predictions, row: Row) -> list[Row]:
    """Return the Fisher criterion, where features or their moments are stored and vary within some class."""
    try:
        moments = ClassMoments.stored(predictions)
        if moments is None:
            return []
        return [replace(row, metric="fisher_criterion", value=moments.criterion(), n=int(moments.count.sum()))]
    except ValueError as error:
        warn_user(f"no Fisher criterion for {predictions.dataset or 'the test set'}: {error}")
        return []


def _shift_name(dataset: str) -> tuple[str, str, int | None]:
    """Split "digits-c/contrast/3" into its parts; any other name is one corruption without severity."""
    parts = dataset.split("/")
    if len(parts) == 3 and parts[2].isdecimal():
        return parts[0], parts[1], int(parts[2])
    return dataset, dataset, None


def shown_name(predictions: Predictions, name: str = "") -> str:
    """Return the name of a dataset in rows, which says if it was rebuilt rather than official."""
    return (name or predictions.dataset) + (" (rebuilt)" if predictions.info.get("rebuilt") == "true" else "")
