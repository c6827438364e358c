"""Empirical risk minimisation: plain cross-entropy, the paper's DNN."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from regmixup.mixing import Draw, cross_entropy, logits_of
from regmixup.objectives._base import Objective, check_labels
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

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        return clean_loss(logits_of(model, x), y)


def clean_loss(logits: Tensor, y: Tensor, smoothing: float = 0.0) -> LossOutput:
    """Mean cross-entropy of a clean batch's logits: the whole of ERM, and RegMixup's first term."""
    check_labels(y, logits.shape[1])
    loss = cross_entropy(logits, y, smoothing).mean()
    return LossOutput(loss=loss, logits=logits, parts={"clean": loss.detach()})
