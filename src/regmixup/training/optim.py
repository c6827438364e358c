"""The optimizer of a recipe."""

from __future__ import annotations

import torch
from torch import nn

from regmixup.networks.contract import Classifier
from regmixup.recipes import Recipe


def make_optimizer(model: Classifier, recipe: Recipe) -> torch.optim.SGD:
    """SGD, with weight decay on what `decay_on` names and none on the rest; all groups share one learning rate.

    The learning rate is a tensor on the model's device and the momentum is there from the start, as zeros (so that the
    first step equals that of an optimizer without any): a captured step refers to both, and can be replayed.
    """
    head = {id(parameter) for parameter in model.head.parameters()}

    def decays(parameter: nn.Parameter) -> bool:
        if recipe.decay_on == "weights":
            return parameter.ndim > 1
        return recipe.decay_on == "all" or id(parameter) not in head

    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if decays(p)], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if not decays(p)], "weight_decay": 0.0},
    ]
    device = parameters[0].device
    dtype = torch.float64 if device.type == "cpu" else torch.float32
    optimizer = torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=torch.tensor(recipe.lr, dtype=dtype, device=device),
        momentum=recipe.momentum,
        nesterov=recipe.nesterov and recipe.momentum > 0,
        fused=True,
    )
    if recipe.momentum > 0:
        for parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Change the learning rate of all groups, in place and without waiting for the device."""
    for group in optimizer.param_groups:
        group["lr"].fill_(lr)
