"""Everything that changes the weights in a step: optimizer, its groups, a frozen backbone, a running mean.

All of it is decided on the device, so that a CUDA graph can capture the step: learning rates and counts are tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.networks.contract import Classifier
from regmixup.recipes import Recipe


def make_optimizer(model: Classifier, recipe: Recipe) -> torch.optim.Optimizer:
    """Return SGD or AdamW with weight decay on what `decay_on` names and none on the rest.

    A group has the parameters of one depth (see `layer_depths`) that decay, or those that do not. Learning rates are
    tensors on the model's device, and the state is there from the start, as zeros (so that the first step equals that
    of an optimizer without any): a captured step refers to both, and can be replayed.
    """
    head = {id(parameter) for parameter in model.head.parameters()}

    def decays(parameter: nn.Parameter) -> bool:
        if recipe.decay_on == "weights":
            return parameter.ndim > 1
        return recipe.decay_on == "all" or id(parameter) not in head

    parameters = list(model.parameters())
    device = parameters[0].device
    dtype = torch.float64 if device.type == "cpu" else torch.float32
    grouped: dict[tuple[int, bool], list[nn.Parameter]] = defaultdict(list)
    depths = layer_depths(model) if recipe.layer_decay < 1 else {}
    for name, parameter in model.named_parameters():
        grouped[depths.get(name, 0), decays(parameter)].append(parameter)
    rates = {depth: torch.tensor(recipe.lr, dtype=dtype, device=device) for depth, _ in grouped}
    groups = [
        {
            "params": grouped[depth, decaying],
            "weight_decay": recipe.weight_decay if decaying else 0.0,
            "lr": rates[depth],
            "lr_scale": recipe.layer_decay**depth,
        }
        for depth, decaying in sorted(grouped, key=lambda key: (key[0], not key[1]))
    ]
    if recipe.optimizer == "adamw":
        beta1, beta2 = map(float, recipe.betas)
        capturable = device.type == "cuda"
        adam = torch.optim.AdamW(groups, lr=rates[0], betas=(beta1, beta2), fused=True, capturable=capturable)
        # torch would warn at the first step outside a graph: a warm-up, a partial batch, any with graphs off.
        adam._warned_capturable_if_run_uncaptured = True
        for parameter in parameters:
            state = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            adam.state[parameter] = {"step": torch.zeros((), device=device), **state}
        return adam
    nesterov = recipe.nesterov and recipe.momentum > 0
    sgd = torch.optim.SGD(groups, lr=rates[0], momentum=recipe.momentum, nesterov=nesterov, fused=True)
    if recipe.momentum > 0:
        for parameter in parameters:
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return sgd


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Change the learning rate of all groups, in place and without waiting for the device."""
    rates = {id(group["lr"]): (group["lr"], lr * group["lr_scale"]) for group in optimizer.param_groups}
    for rate, scaled in rates.values():
        rate.fill_(scaled)


def layer_depths(model: Classifier) -> dict[str, int]:
    """Return how many layers lie above each parameter: 0 for the head's, 1 for those of the backbone's last layer.

    A layer is what timm's own matcher calls a group (a stem, a block), else a part of the backbone with parameters; a
    normalisation belongs to the layer before it.

    >>> from regmixup import networks
    >>> depths = layer_depths(networks.build("resnet18", num_classes=10))
    >>> depths["head.weight"], depths["backbone.10.branch.0.weight"], depths["backbone.0.weight"]
    (0, 1, 9)
    """
    backbone = model.backbone
    inner = backbone[0] if isinstance(backbone, nn.Sequential) and len(backbone) else backbone
    if hasattr(inner, "group_matcher"):
        numbers, top = _timm_layers(inner)
    else:
        numbers, top = {}, 0
        for part, module in backbone.named_children():
            parameters = dict(module.named_parameters())
            top += any(parameter.ndim > 1 for parameter in parameters.values())
            numbers |= {f"backbone.{part}.{name}": max(0, top - 1) for name in parameters}
    return {name: top - numbers[name] if name in numbers else 0 for name, _ in model.named_parameters()}


def _timm_layers(inner: Any) -> tuple[dict[str, int], int]:
    """Return the number of each parameter's layer, and that of the head, which timm's own model would have."""
    from timm.models._manipulate import group_with_matcher

    classifier = inner.pretrained_cfg.get("classifier") or "head"
    head = f"{classifier if isinstance(classifier, str) else classifier[0]}.weight"
    named = chain(inner.named_parameters(), [(head, None)])
    numbers = group_with_matcher(named, inner.group_matcher(coarse=False), reverse=True)
    top = numbers.pop(head)
    return {f"backbone.0.{name}": number for name, number in numbers.items()}, top


def set_frozen(model: Classifier, *, frozen: bool) -> bool:
    """Exclude the backbone from training, or include it again; return whether that changed something."""
    parameters = list(model.backbone.parameters())
    changed = any(parameter.requires_grad == frozen for parameter in parameters)
    if frozen and not any(parameter.requires_grad for parameter in model.head.parameters()):
        raise ValueError(f"freeze must be 0 for a head without weights, such as {type(model.head).__name__}")
    for parameter in parameters:
        parameter.requires_grad_(not frozen)
        if frozen:
            parameter.grad = None  # or the optimizer would go on with the last one
    return changed


class Copy:
    """A second set of a model's weights and buffers, kept in a checkpoint beside the model's own under `prefix`.

    Values of one type are in one row. counters: further numbers that a checkpoint must have, by name.
    """

    prefix: str
    counters: dict[str, Tensor]

    def __init__(self, model: nn.Module) -> None:
        self._live: dict[torch.dtype, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in model.state_dict().items():
            self._live[tensor.dtype][name] = tensor
        self.rows = self.live_rows()
        self.device = next(iter(self.rows.values())).device

    def live_rows(self) -> dict[torch.dtype, Tensor]:
        """Return what the model has now."""
        return {dtype: flattened(group.values()) for dtype, group in self._live.items()}

    def state(self) -> dict[str, Tensor]:
        """Return the values by the names of the model's state dict, and the counters; views, not copies."""
        return self.counters | {name: part for name, _, part in self._parts(self.rows)}

    def tensors(self) -> list[Tensor]:
        return [*self.rows.values(), *self.counters.values()]

    @contextmanager
    @torch.no_grad()
    def in_place(self) -> Iterator[None]:
        """Give the model these values; at the end keep what they have become, and give the model its own back."""
        kept = self.live_rows()
        self._copy_to_model(self.rows)
        yield
        for dtype, row in self.live_rows().items():
            self.rows[dtype].copy_(row)
        self._copy_to_model(kept)

    def _copy_to_model(self, rows: dict[torch.dtype, Tensor]) -> None:
        for _, target, part in self._parts(rows):
            target.copy_(part)

    def _parts(self, rows: dict[torch.dtype, Tensor]) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield each name of the model's state dict, the model's tensor, and the values for it in the rows: a view."""
        for dtype, group in self._live.items():
            for (name, live), part in zip(group.items(), cut_up(rows[dtype], [*group.values()]), strict=True):
                yield name, live, part


class Average(Copy):
    """An exponential running mean of a model's weights and buffers: a <- d a + (1 - d) w after every step.

    d is min(decay, (1 + t) / (10 + t)) after t updates, as TensorFlow's. What is not a floating-point number is copied.
    A step that the guard refused changes nothing, whatever its forward pass left in the buffers.
    """

    prefix = "ema."

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__(model)
        self.decay = decay
        self.updates = torch.zeros((), dtype=torch.int64, device=self.device)
        self.counters = {"updates": self.updates}

    @torch.no_grad()
    def update(self, closed: Tensor) -> None:
        """Move the mean towards the weights, unless `closed` is 1; nothing is read from the device."""
        updates = self.updates.to(torch.float64 if closed.device.type == "cpu" else torch.float32)
        decay = ((1 + updates) / (10 + updates)).clamp(max=self.decay)
        for dtype, mean in self.rows.items():
            live = flattened(self._live[dtype].values())
            new = torch.lerp(mean, live, (1 - decay).to(dtype)) if dtype.is_floating_point else live
            # Equal numbers stay: an infinite one, as in a mask, has no difference from itself.
            torch.where((closed > 0) | (mean == live), mean, new, out=mean)
        self.updates += closed <= 0


def flattened(tensors: Iterable[Tensor]) -> Tensor:
    """Return the values of all tensors in one row."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def cut_up(row: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts of a row of `flattened` tensors, each in the shape of its tensor: views, not copies."""
    parts = row.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
