"""The registry of metrics by name. To add a metric, write its function and enter it here.

Every metric takes a sample, or what makes one: `Outcomes` or probabilities and labels; `ScorePair` or scores of both
sets; `Selection` or scores and right predictions. Of a sample with weights (R, N) it returns R values, so that the same
function serves the value and its bootstrap. `evaluate` measures all that are entered. Less of a metric is better unless
`regmixup.types.higher_is_better` lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from regmixup.metrics import calibration, detection, selective
from regmixup.metrics.weights import Value

Metric = Callable[..., Value]

CLASSIFICATION: dict[str, Metric] = {
    "accuracy": calibration.accuracy,
    "nll": calibration.nll,
    "brier": calibration.brier,
    "ece": calibration.ece,
    "adaptive_ece": calibration.adaptive_ece,
    "mce": calibration.mce,
    "debiased_ece": calibration.debiased_ece,
    "classwise_ece": calibration.classwise_ece,
}

ON_SHIFT = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "debiased_ece")
"""The metrics of each of the many shifted sets; on the test set it is all of CLASSIFICATION."""

BINNED = frozenset({"ece", "adaptive_ece", "classwise_ece", "mce", "debiased_ece"})
"""Metrics that resampling makes larger on average: see `Bootstrap.interval`."""

BINNED_INTERVALS = (
    "Intervals of calibration errors cover the estimate expected for as many images, not the population's error, which "
    "is smaller; debiased_ece, a root mean square over the bins, estimates the latter."
)
"""The remark to show beside these intervals."""

DETECTION: dict[str, Metric] = {
    "auroc": detection.auroc,
    "aupr": detection.aupr,
    "aupr_id": partial(detection.aupr, positive="id"),
    "fpr_at_tpr": detection.fpr_at_tpr,
    "fpr_at_tpr_ood": partial(detection.fpr_at_tpr, convention="detect_ood"),
}

SELECTIVE: dict[str, Metric] = {
    "aurc": selective.aurc,
    "augrc": selective.augrc,
    "failure_auroc": selective.failure_auroc,
}

SCOD: dict[str, Metric] = {"scod_aurc": selective.aurc, "scod_augrc": selective.augrc}
"""Selective metrics of the test set and an OOD set together, whose images count as errors."""
