"""Out-of-distribution scores: `rm.scores`. Larger means more out-of-distribution, always.

Scores of logits are functions; scores of features are dataclasses of hyper-parameters, fitted on train features.
"""

from regmixup.metrics.scores._features import FeatureScore, FittedScore
from regmixup.metrics.scores.ash import ASH, FittedASH
from regmixup.metrics.scores.logit_scores import (
    SCORES,
    SCORES_OF_PROBS,
    dempster_shafer,
    duq,
    energy,
    entropy,
    gen,
    max_logit,
    max_probability,
    odin,
)
from regmixup.metrics.scores.mahalanobis import FittedMahalanobis, Mahalanobis
from regmixup.metrics.scores.members import mutual_information
from regmixup.metrics.scores.nearest import KNN, FittedKNN
from regmixup.metrics.scores.react import FittedReAct, ReAct
from regmixup.metrics.scores.registry import REGISTRY, Score, available, fit_scores, score_all
from regmixup.metrics.scores.relative_mahalanobis import FittedRelativeMahalanobis, RelativeMahalanobis
from regmixup.metrics.scores.vim import FittedViM, ViM

__all__ = [
    "ASH", "KNN", "REGISTRY", "SCORES", "SCORES_OF_PROBS", "FeatureScore", "FittedASH", "FittedKNN",
    "FittedMahalanobis", "FittedReAct", "FittedRelativeMahalanobis", "FittedScore", "FittedViM", "Mahalanobis",
    "ReAct", "RelativeMahalanobis", "Score", "ViM", "available", "dempster_shafer", "duq", "energy", "entropy",
    "fit_scores", "gen", "max_logit", "max_probability", "mutual_information", "odin", "score_all",
]  # fmt: skip
