"""DUQ: binary cross-entropy on class kernels with a gradient penalty (van Amersfoort et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regmixup.config import NotNegative
from regmixup.losses import check_labels, soft_targets
from regmixup.mixing import Draw, can_look, full_precision
from regmixup.networks.outputs import logits_of
from regmixup.objectives._base import Objective
from regmixup.types import LossOutput


@dataclass(frozen=True, kw_only=True)
class DUQ(Objective):
    """BCE(K(x), y) + penalty * mean (||grad_x sum_c K_c(x)|| - 1)^2, for a network with the "rbf" head.

    K_c = exp(logit_c) lies in (0, 1]. The binary cross-entropy is the mean over batch and classes against one-hot (or
    soft) labels; the penalty is two-sided and keeps the features sensitive to changes of the input, so that unknown
    images do not land on a centroid. The gradient is with respect to the images as the network's layers see them,
    that is after normalisation. After each optimizer step call `model.after_step(x, y)`, which moves the centroids.

    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2), torch.nn.LogSigmoid())
    >>> _ = [torch.nn.init.zeros_(p) for p in model.parameters()]
    >>> out = DUQ(penalty=0.5)(model, torch.rand(3, 1, 2, 2), torch.tensor([0, 1, 1]))
    >>> round(out.loss.item(), 4)  # every kernel is 1/2 and flat: log 2 + 0.5
    1.1931
    """

    head: ClassVar[str] = "rbf"

    penalty: NotNegative = 0.75
    """Weight of the gradient penalty; 0 leaves it out."""

    @property
    def differentiates_twice(self) -> bool:
        return self.penalty > 0

    def compute(self, model: nn.Module, x: Tensor, y: Tensor, draw: Draw) -> LossOutput:
        if self.penalty > 0:
            if not torch.is_grad_enabled():
                raise ValueError(f"penalty must be 0 under no_grad and inference_mode, got {self.penalty}")
            x = x.detach().requires_grad_()
        logits = logits_of(model, x)
        check_labels(y, logits.shape[1])
        if can_look(logits) and bool((logits > 0).any()):
            raise ValueError('model must return log kernels <= 0, as networks with head="rbf" do, got values above 0')
        log_kernel = full_precision(logits)
        clean = binary_cross_entropy(log_kernel, soft_targets(y, log_kernel))
        parts = {"clean": clean.detach()}
        loss = clean
        if self.penalty > 0:
            penalty = (_slope(log_kernel.exp(), x, model) - 1).square().mean()
            parts["penalty"] = penalty.detach()
            loss = clean + self.penalty * penalty
        return LossOutput(loss=loss, logits=logits, parts=parts)


def binary_cross_entropy(log_kernel: Tensor, target: Tensor) -> Tensor:
    """Return -mean(t log K + (1 - t) log(1 - K)); log(1 - K) stops at -16, where float32 cannot tell K from 1."""
    log_rest = torch.log(-torch.expm1(log_kernel.clamp(max=-1e-7)))
    return -(target * log_kernel + (1 - target) * log_rest).mean()


def _slope(kernels: Tensor, x: Tensor, model: nn.Module) -> Tensor:
    """Return ||grad sum_c K_c|| of each image, (N,). The layers see z = (x - mean) / std, so d/dz = std d/dx."""
    (gradient,) = torch.autograd.grad(kernels.sum(), x, create_graph=True)
    std = getattr(getattr(model, "normalize", None), "std", None)
    if std is not None:
        gradient = gradient * std
    return gradient.flatten(1).to(kernels.dtype).norm(dim=1)
