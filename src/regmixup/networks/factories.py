"""Networks of others: what a registered factory builds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.networks.contract import evaluated


def from_factory(
    name: str, factory: Callable[..., nn.Module], options: Mapping[str, Any]
) -> tuple[nn.Module, int, nn.Linear | None]:
    """Return what a registered factory builds as a backbone, its number of features, and its own last layer if any.

    options: num_classes, in_channels, image_size and dropout; those that the factory has no parameter for are left out.
    The last layer is the last `nn.Linear` of num_classes outputs; an identity takes its place. A trial with one image
    shows whether it is really the last thing that the module does.
    """
    names = _parameters(factory)
    if options["dropout"] is not None and "dropout" not in names:
        raise ValueError(f"dropout must be None for {name}, whose factory has no such parameter")
    module = factory(**{key: option for key, option in options.items() if key in names and option is not None})
    num_classes, example = options["num_classes"], torch.rand(1, options["in_channels"], *options["image_size"])
    output = evaluated(module, example)
    if not isinstance(output, Tensor) or output.ndim != 2:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"network {name} must return logits (N, {num_classes}) or features (N, D), got {shape}")
    if "num_classes" not in names:
        return module, output.shape[1], None
    last = _take_last(module, num_classes) if output.shape[1] == num_classes else None
    if last is not None:
        features = evaluated(module, example)
        if features.shape == (1, last.in_features) and torch.allclose(evaluated(last, features), output):
            return module, last.in_features, last
    raise ValueError(
        f"network {name} must end in an nn.Linear of {num_classes} outputs, so that it has features; or let its "
        "factory have no parameter num_classes and return the backbone, from images to features (N, D)"
    )


def _parameters(factory: Callable[..., nn.Module]) -> set[str]:
    """Return the names of a factory's parameters, num_classes among them where it takes any, as torchvision's do."""
    parameters = inspect.signature(factory).parameters.values()
    names = {parameter.name for parameter in parameters}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        names.add("num_classes")
    return names


def _take_last(module: nn.Module, num_classes: int) -> nn.Linear | None:
    """Take the last linear layer of num_classes outputs out of a module, if it has one, and leave an identity there."""
    for path, layer in reversed(list(module.named_modules())):
        if path and isinstance(layer, nn.Linear) and layer.out_features == num_classes:
            module.set_submodule(path, nn.Identity())
            return layer
    return None
