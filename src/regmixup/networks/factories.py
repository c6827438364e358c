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
    parameters = inspect.signature(factory).parameters.values()
    names = {parameter.name for parameter in parameters}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):  # as torchvision's have
        names.add("num_classes")
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
    linear = [(path, layer) for path, layer in module.named_modules() if isinstance(layer, nn.Linear) and path]
    layers = [(path, layer) for path, layer in linear if layer.out_features == output.shape[1] == num_classes]
    if layers:
        path, last = layers[-1]
        module.set_submodule(path, nn.Identity())
        features = evaluated(module, example)
        if features.shape == (1, last.in_features) and torch.allclose(evaluated(last, features), output):
            return module, last.in_features, last
    raise ValueError(
        f"network {name} must end in an nn.Linear of {num_classes} outputs, so that it has features; or let its "
        "factory have no parameter num_classes and return the backbone, from images to features (N, D)"
    )
