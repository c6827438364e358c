"""Label smoothing: cross-entropy against labels moved towards uniform."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regmixup.config import check_number
from regmixup.mixing import Draw, logits_of
from regmixup.objectives._base import Objective
from regmixup.objectives.erm import clean_loss
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class LabelSmoothing(Objective):
    """Cross-entropy with targets (1 - s) onehot(y) + s / K, s = `smoothing` (Szegedy et al., 2016).

    The paper's conclusion calls it vicinal risk minimisation over the labels.
    """

    smoothing: float = 0.1
    """s: share of the label that is spread over all classes, from 0 to below 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("smoothing", self.smoothing, least=0, below=1)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        return clean_loss(logits_of(model, x), y, self.smoothing)
