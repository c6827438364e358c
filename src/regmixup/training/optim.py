"""The optimizer and its groups, a frozen backbone, and copies of the weights: means over steps (EMA) or epochs (SWA).

All that a step does is decided on the device, so that a CUDA graph can capture it: rates and counts are tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.networks.constraints import power_vectors
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


class Copy:
    """A second set of a model's weights and buffers, kept in a checkpoint beside the model's own under `prefix`.

    live: the model's own tensors, by name. values: the copies. counters: further numbers that a checkpoint must have.
    """

    prefix: str
    counters: dict[str, Tensor]

    def __init__(self, model: nn.Module) -> None:
        self.live = model.state_dict()
        self.values = {name: tensor.clone() for name, tensor in self.live.items()}
        self.device = next(iter(self.values.values())).device

    def state(self) -> dict[str, Tensor]:
        """Return all that a checkpoint must have."""
        return self.counters | self.values

    @contextmanager
    @torch.no_grad()
    def in_place(self) -> Iterator[None]:
        """Give the model these values; at the end keep what they have become, and give the model its own back."""
        kept = {name: tensor.clone() for name, tensor in self.live.items()}
        copy_values(self.values, self.live)
        yield
        copy_values(self.live, self.values)
        copy_values(kept, self.live)


def copy_values(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    """Copy tensors to those of the same names, in place."""
    for name, tensor in source.items():
        target[name].copy_(tensor)


class WeightMean(Copy):
    """A mean of a model's weights and buffers, which moves towards them. updates: how often it has moved.

    Whole numbers are copied, and so are tensors with infinite ones, such as masks, and vectors of power iterations.
    counter: the name of `updates` in a checkpoint. share: from `updates` to the share of the way that the mean moves.
    """

    def __init__(self, model: nn.Module, *, prefix: str, counter: str, share: Callable[[Tensor], Tensor]) -> None:
        super().__init__(model)
        self.prefix, self.share = prefix, share
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)
        self.counters = {counter: self.updates}
        numbers = {name: tensor for name, tensor in self.live.items() if tensor.is_floating_point()}
        finite = {name for name, tensor in numbers.items() if tensor.isfinite().all()}
        # A mean of unit vectors is shorter: that of a power iteration would understate the norm which it bounds.
        self.averaged = finite - power_vectors(model).keys()

    @torch.no_grad()
    def update(self) -> None:
        """Move the mean towards the weights; nothing is read from the device."""
        share = self.share(self.updates.to(rate_type(self.device)))
        for name, mean in self.values.items():
            if name in self.averaged:
                mean.lerp_(self.live[name], share.to(mean.dtype))
            else:
                mean.copy_(self.live[name])
        self.updates += 1


def running_mean(model: nn.Module, decay: float) -> WeightMean:
    """Return an exponential running mean of a model's weights and buffers: a <- d a + (1 - d) w after every step.

    d is min(decay, (1 + t) / (10 + t)) after t updates, as TensorFlow's.
    """

    def share(updates: Tensor) -> Tensor:
        return 1 - ((1 + updates) / (10 + updates)).clamp(max=decay)

    return WeightMean(model, prefix="ema.", counter="updates", share=share)


def epoch_mean(model: nn.Module) -> WeightMean:
    """Return the plain mean of a model's weights at the ends of the last epochs (SWA, Izmailov et al., 2018).

    Batch-norm statistics do not belong to the mean of weights: they are estimated when training has ended, see
    `train.complete_mean`.
    """
    return WeightMean(model, prefix="swa.", counter="epochs", share=lambda updates: 1 / (updates + 1))
