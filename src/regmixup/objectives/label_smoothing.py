"""Label smoothing: cross-entropy against labels moved towards uniform."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regmixup.config import check_number
from regmixup.mixing import Draw
from regmixup.objectives.erm import ERM, clean_loss
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(ERM):
    """Cross-entropy with targets (1 - s) onehot(y) + s / K, s = `smoothing` (Szegedy et al., 2016).

    The paper's conclusion calls it vicinal risk minimisation over the labels. Any other objective does the same with
    loss=rm.losses.CrossEntropy(smoothing=s). Another `loss` gets the smoothed targets.
    """

    smoothing: float = 0.1
    """s, from 0 to below 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("smoothing", self.smoothing, least=0, below=1)

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        return clean_loss(model, x, y, self.loss, self.smoothing)
