"""The optimizer and its groups, its learning rate, and a frozen backbone.

All that a step does is decided on the device, so that a CUDA graph can capture it: rates and counts are tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regmixup.networks.contract import Classifier
from regmixup.recipes import Recipe


def make_optimizer(model: Classifier, recipe: Recipe) -> torch.optim.Optimizer:
    """Return SGD or AdamW with weight decay on what `decay_on` names and none on the rest.

    The learning rate is a tensor on the model's device, and the state is there from the start, as zeros (so that the
    first step equals that of an optimizer without any): a captured step refers to both, and can be replayed.
    """
    head = {id(parameter) for parameter in model.head.parameters()}

    def decays(parameter: nn.Parameter) -> bool:
        if recipe.decay_on == "weights":
            return parameter.ndim > 1
        return recipe.decay_on == "all" or id(parameter) not in head

    parameters = list(model.parameters())
    device = parameters[0].device
    rate = torch.tensor(recipe.lr, dtype=rate_type(device), device=device)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if decays(p)], "weight_decay": recipe.weight_decay, "lr": rate},
        {"params": [p for p in parameters if not decays(p)], "weight_decay": 0.0, "lr": rate},
    ]
    groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "adamw":
        beta1, beta2 = map(float, recipe.betas)
        capturable = device.type == "cuda"
        adam = torch.optim.AdamW(groups, lr=rate, betas=(beta1, beta2), fused=True, capturable=capturable)
        # torch would warn at the first step outside a graph: a warm-up, a partial batch, any with graphs off.
        adam._warned_capturable_if_run_uncaptured = True
        for parameter in parameters:
            state = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            adam.state[parameter] = {"step": torch.zeros((), device=device), **state}
        return adam
    nesterov = recipe.nesterov and recipe.momentum > 0
    sgd = torch.optim.SGD(groups, lr=rate, momentum=recipe.momentum, nesterov=nesterov, fused=True)
    if recipe.momentum > 0:
        for parameter in parameters:
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return sgd


def rate_type(device: torch.device) -> torch.dtype:
    """Return the type of numbers that a step computes with beside the weights."""
    return torch.float64 if device.type == "cpu" else torch.float32


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Change the learning rate, which all groups share, in place and without waiting for the device."""
    optimizer.param_groups[0]["lr"].fill_(lr)


def set_frozen(model: Classifier, *, frozen: bool) -> bool:
    """Exclude the backbone from training, or include it again; return whether that changed something.

    Weights that a network's factory has frozen stay so.
    """
    if frozen and not any(parameter.requires_grad for parameter in model.head.parameters()):
        raise ValueError(f"freeze must be 0 for a head without weights, such as {type(model.head).__name__}")
    if not frozen:
        thawed, model.frozen = model.frozen, []
        for parameter in thawed:
            parameter.requires_grad_(True)
        return bool(thawed)
    learning = [parameter for parameter in model.backbone.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
        parameter.grad = None  # or the optimizer would go on with the last one
    model.frozen += learning
    return bool(learning)
