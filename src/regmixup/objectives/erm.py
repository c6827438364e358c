"""Empirical risk minimisation: plain cross-entropy, the paper's DNN."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regmixup.config import introduced
from regmixup.losses import LossLike, image_losses
from regmixup.mixing import Draw
from regmixup.networks.outputs import logits_of
from regmixup.objectives._base import Objective
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class ERM(Objective):
    """Mean cross-entropy on the clean images (Section 2 of the paper, "ERM").

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False))
    >>> _ = torch.nn.init.zeros_(model[1].weight)
    >>> out = ERM()(model, torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 1]))
    >>> round(out.loss.item(), 4)  # log 2
    0.6931
    """

    loss: LossLike | None = introduced(None)
    """Another loss of soft targets, such as rm.losses.Focal(); None is cross-entropy."""

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        return clean_loss(model, x, y, self.loss)


def clean_loss(
    model: nn.Module, x: Tensor, y: Tensor, loss: LossLike | None = None, smoothing: float = 0.0
) -> LossOutput:
    """Return the mean loss of the clean images: all of ERM, and of any objective whose second term is turned off."""
    logits = logits_of(model, x)
    mean = image_losses(logits, y, loss, smoothing).mean()
    return LossOutput(loss=mean, logits=logits, parts={"clean": mean.detach()})
