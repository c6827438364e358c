"""Networks of others: what a registered factory builds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.networks.contract import evaluated


def from_factory(
    name: str,
    factory: Callable[..., nn.Module],
    *,
    num_classes: int,
    in_channels: int,
    image_size: tuple[int, int],
    dropout: float | None,
) -> tuple[nn.Module, int, nn.Linear | None]:
    """Return what a registered factory builds as a backbone, its number of features, and its own last layer if any.

    The last layer is the last `nn.Linear` of num_classes outputs; an identity takes its place. A trial with one image
    shows whether it is really the last thing that the module does.
    """
    options: dict[str, Any] = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    options |= {} if dropout is None else {"dropout": dropout}
    parameters = inspect.signature(factory).parameters.values()
    names = {p.name for p in parameters}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):  # passed on to something unknown: give only what is needed
        names |= {"num_classes", "dropout"} | ({"in_channels"} if in_channels != 3 else set())
    options = {key: option for key, option in options.items() if key in names}
    if dropout is not None and "dropout" not in options:
        raise ValueError(f"dropout must be None for {name}, whose factory has no such parameter, got {dropout}")
    try:
        module = factory(**options)
        example = torch.rand(1, in_channels, *image_size)
        output = evaluated(module, example)
    except Exception as error:  # whatever the code of others raises
        raise ValueError(f"network {name} cannot be built with {options}: {type(error).__name__}: {error}") from error
    if not isinstance(output, Tensor) or output.ndim != 2:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"network {name} must return logits (N, {num_classes}) or features (N, D), got {shape}")
    if "num_classes" not in options or output.shape[1] != num_classes:
        return module, output.shape[1], None
    for path, layer in reversed(list(module.named_modules())):
        if isinstance(layer, nn.Linear) and layer.out_features == num_classes and path:
            module.set_submodule(path, nn.Identity())
            features = evaluated(module, example)
            if features.shape == (1, layer.in_features) and torch.allclose(evaluated(layer, features), output):
                return module, layer.in_features, layer
            break
    raise ValueError(
        f"network {name} must end in an nn.Linear of {num_classes} outputs, so that it has features; or let its "
        "factory have no parameter num_classes and return the backbone, from images to features (N, D)"
    )
