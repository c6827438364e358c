"""Label smoothing: cross-entropy against labels moved towards uniform."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regmixup.config import Share
from regmixup.mixing import Draw
from regmixup.objectives.erm import ERM, clean_loss
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(ERM):
    """Cross-entropy with targets (1 - s) onehot(y) + s / K, s = `smoothing` (Szegedy et al., 2016).

    The paper's conclusion calls it vicinal risk minimisation over the labels. Any other objective does the same with
    loss=rm.losses.CrossEntropy(smoothing=s). Another `loss` gets the smoothed targets.
    """

    smoothing: Share = 0.1
    """s, from 0 to below 1."""

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        return clean_loss(model, x, y, self.loss, self.smoothing)
