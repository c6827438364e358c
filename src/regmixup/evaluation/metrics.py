"""All metrics in one place: `rm.metrics`. Every function returns a Python float, a fraction rather than percent."""

from regmixup.evaluation.calibration import accuracy, adaptive_ece, brier, ece, nll, reliability
from regmixup.evaluation.detection import aupr, auroc, fpr_at_tpr

__all__ = ["accuracy", "adaptive_ece", "aupr", "auroc", "brier", "ece", "fpr_at_tpr", "nll", "reliability"]
