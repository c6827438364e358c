"""Metrics, `rm.metrics`: tensors and weights in, numbers out. Values are fractions rather than percent.

This package imports nothing but the ground (types, config, names); posthoc and evaluation build on it.
"""

from regmixup.metrics.bootstrap import Bootstrap, Interval, resampled
from regmixup.metrics.calibration import (
    Reliability,
    accuracy,
    adaptive_ece,
    brier,
    classwise_ece,
    debiased_ece,
    ece,
    mce,
    nll,
    reliability,
)
from regmixup.metrics.detection import (
    RocCurve,
    ScorePair,
    aupr,
    auroc,
    fpr_at_tpr,
    roc_curve,
)
from regmixup.metrics.fisher import ClassMoments, fisher_criterion
from regmixup.metrics.outcomes import Outcomes
from regmixup.metrics.registry import CLASSIFICATION, DETECTION, SELECTIVE
from regmixup.metrics.selective import (
    RiskCoverage,
    Selection,
    augrc,
    aurc,
    coverage_at_risk,
    eaurc,
    failure_auroc,
    risk_coverage,
    scod_augrc,
    scod_aurc,
)
from regmixup.metrics.shift import mean_corruption_error
from regmixup.metrics.streaming import AUGRC, AUROC

__all__ = [
    "AUGRC", "AUROC", "CLASSIFICATION", "DETECTION", "SELECTIVE", "Bootstrap",
    "ClassMoments", "Interval", "Outcomes", "Reliability", "RiskCoverage", "RocCurve", "ScorePair", "Selection",
    "accuracy", "adaptive_ece", "augrc", "aupr", "aurc", "auroc", "brier", "classwise_ece",
    "coverage_at_risk", "debiased_ece", "eaurc", "ece", "failure_auroc",
    "fisher_criterion", "fpr_at_tpr", "mce", "mean_corruption_error", "nll", "reliability", "resampled",
    "risk_coverage", "roc_curve", "scod_augrc", "scod_aurc",
]  # fmt: skip
