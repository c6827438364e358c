"""Out-of-distribution scores: `rm.scores`. Larger means more out-of-distribution, always.

Scores of logits are functions; scores of features are dataclasses of hyper-parameters, fitted on train features.
"""

from regmixup.metrics.scores.features import KNN, FittedScore
from regmixup.metrics.scores.head_scores import ASH, FDBD, SCALE, NNGuide, ReAct, ViM
from regmixup.metrics.scores.logit_scores import (
    dempster_shafer,
    energy,
    entropy,
    gen,
    max_logit,
    max_logit_pnorm,
    max_probability,
    mutual_information,
    odin,
)
from regmixup.metrics.scores.mahalanobis import Mahalanobis, RelativeMahalanobis
from regmixup.metrics.scores.registry import REGISTRY, SCORES, Score, available, fit_scores, register, score_all

__all__ = [
    "ASH", "FDBD", "KNN", "REGISTRY", "SCALE", "SCORES", "FittedScore", "Mahalanobis", "NNGuide", "ReAct",
    "RelativeMahalanobis", "Score", "ViM", "available", "dempster_shafer", "energy", "entropy", "fit_scores", "gen",
    "max_logit", "max_logit_pnorm", "max_probability", "mutual_information", "odin", "register", "score_all",
]  # fmt: skip
