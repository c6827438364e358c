"""Metrics, `rm.metrics`: tensors and weights in, numbers out. Values are fractions rather than percent.

This package imports nothing but the ground (types, config, names, plugins); posthoc and evaluation build on it.
"""

from regmixup.metrics.bootstrap import Bootstrap, Interval, resampled
from regmixup.metrics.calibration import (
    CLASSIFICATION,
    Reliability,
    accuracy,
    adaptive_ece,
    brier,
    debiased_ece,
    ece,
    nll,
    reliability,
)
from regmixup.metrics.detection import DETECTION, RocCurve, ScorePair, aupr, auroc, fpr_at_tpr, roc_curve
from regmixup.metrics.fisher import ClassMoments, fisher_criterion
from regmixup.metrics.outcomes import Outcomes
from regmixup.metrics.selective import SELECTIVE, RiskCoverage, augrc, aurc, failure_auroc, risk_coverage

__all__ = [
    "CLASSIFICATION", "DETECTION", "SELECTIVE", "Bootstrap", "ClassMoments", "Interval", "Outcomes",
    "Reliability", "RiskCoverage", "RocCurve", "ScorePair", "accuracy", "adaptive_ece", "augrc", "aupr", "aurc",
    "auroc", "brier", "debiased_ece", "ece", "failure_auroc", "fisher_criterion", "fpr_at_tpr",
    "nll", "reliability", "resampled", "risk_coverage", "roc_curve",
]  # fmt: skip
