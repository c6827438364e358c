"""The registry of metrics by name: each with its value on a set of predictions and its resampled form.

For an interval, draw the counts of a set of images once and use them for everything measured on these images:

    bootstrap = Bootstrap()
    counts = bootstrap.counts(len(labels), stream="cifar10/test")
    values = resample_classification(probs, labels, counts, ["accuracy", "ece"])  # {"accuracy": (R,), "ece": (R,)}
    bootstrap.interval(values["accuracy"])
    bootstrap.interval(values["ece"], about=ece(probs, labels))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regmixup.metrics import calibration, detection
from regmixup.metrics.bootstrap import Counts
from regmixup.metrics.calibration import ResampledOutcomes, SortedOutcomes
from regmixup.metrics.detection import ResampledScores, SortedScores, check_scores
from regmixup.metrics.ordering import take_columns
from regmixup.metrics.outcomes import Outcomes
from regmixup.names import check_name


@dataclass(frozen=True)
class Metric:
    """value: (probs, labels), or their `Outcomes`, or (id_scores, ood_scores) -> float; resampled: the same for each of
    R resamples, `ResampledOutcomes`, or `ResampledScores` of both sets, -> (R,)."""

    value: Callable[..., float]
    resampled: Callable[..., Tensor]


CLASSIFICATION = {
    "accuracy": Metric(calibration.accuracy, calibration.resampled_accuracy),
    "nll": Metric(calibration.nll, calibration.resampled_nll),
    "brier": Metric(calibration.brier, calibration.resampled_brier),
    "ece": Metric(calibration.ece, calibration.resampled_ece),
    "adaptive_ece": Metric(calibration.adaptive_ece, calibration.resampled_adaptive_ece),
    "classwise_ece": Metric(calibration.classwise_ece, calibration.resampled_classwise_ece),
    "mce": Metric(calibration.mce, calibration.resampled_mce),
    "debiased_ece": Metric(calibration.debiased_ece, calibration.resampled_debiased_ece),
}

BINNED = frozenset({"ece", "adaptive_ece", "classwise_ece", "mce", "debiased_ece"})
"""Metrics that resampling makes larger on average: see `Bootstrap.interval`."""

BINNED_INTERVALS = (
    "Intervals of calibration errors cover the estimate expected for as many images, not the population's error, which "
    "is smaller; debiased_ece, a root mean square over the bins, estimates the latter."
)
"""The remark to show beside these intervals."""

DETECTION = {
    "auroc": Metric(detection.auroc, detection.resampled_auroc),
    "aupr": Metric(detection.aupr, detection.resampled_aupr),
    "aupr_id": Metric(partial(detection.aupr, positive="id"), detection.resampled_aupr_id),
    "fpr_at_tpr": Metric(detection.fpr_at_tpr, detection.resampled_fpr_at_tpr),
    "fpr_at_tpr_ood": Metric(
        partial(detection.fpr_at_tpr, convention="detect_ood"), detection.resampled_fpr_at_tpr_ood
    ),
}


def resample_classification(
    probs: Tensor | Outcomes, labels: Tensor | None, counts: Counts, metrics: Iterable[str]
) -> dict[str, Tensor]:
    """Return each of the metrics, with its default options, on every resample: (R,) by name.

    probs: (N, K); labels: (N,); counts: of N samples. Shifted versions of the same images share the counts, so the mean
    over subsets of what this returns is the subsets' mean on jointly resampled images. All metrics but classwise_ece
    also take `Outcomes` with terms for probs, and None for labels.
    """
    chosen = {name: CLASSIFICATION[check_name("metric", name, CLASSIFICATION)].resampled for name in metrics}
    sample = SortedOutcomes(probs, labels)
    counts.check("counts", "probs", len(sample.right))
    parts = []
    for chunk in counts.chunks(sample.right.device):
        resampled = ResampledOutcomes(sample, chunk)
        parts.append({name: function(resampled) for name, function in chosen.items()})
    return {name: torch.cat([part[name] for part in parts]) for name in chosen}


def resample_detection(
    id_scores: Tensor, ood_scores: Tensor, id_counts: Counts, ood_counts: Counts, metrics: Iterable[str]
) -> dict[str, Tensor]:
    """Return each of the metrics, with its default options, on every pair of resamples: (R,) by name.

    id_scores: (N,); ood_scores: (M,); the counts of both have R rows and should come from different streams.
    """
    chosen = {name: DETECTION[check_name("metric", name, DETECTION)].resampled for name in metrics}
    id_scores, ood_scores = check_scores(id_scores, ood_scores)
    id_counts.check("id_counts", "id_scores", len(id_scores))
    ood_counts.check("ood_counts", "ood_scores", len(ood_scores))
    if len(id_counts.values) != len(ood_counts.values):
        raise ValueError(
            f"both counts must hold as many resamples, got {len(id_counts.values)} and {len(ood_counts.values)}"
        )
    both = SortedScores(id_scores, ood_scores), SortedScores(ood_scores, id_scores)
    width = max(len(id_scores), len(ood_scores))
    chunks = [counts.chunks(id_scores.device, width) for counts in (id_counts, ood_counts)]
    parts = []
    for pair in zip(*chunks, strict=True):
        sides = [ResampledScores(own, take_columns(some, own.order)) for own, some in zip(both, pair, strict=True)]
        parts.append({name: function(*sides) for name, function in chosen.items()})
    return {name: torch.cat([part[name] for part in parts]) for name in chosen}
