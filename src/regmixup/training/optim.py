"""The optimizer of a recipe."""

from __future__ import annotations

import torch
from torch import nn

from regmixup.networks.contract import Classifier
from regmixup.recipes import Recipe


def make_optimizer(model: Classifier, recipe: Recipe) -> torch.optim.SGD:
    """SGD, with weight decay on what `decay_on` names and none on the rest."""
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
    return torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=recipe.lr,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov and recipe.momentum > 0,
    )
