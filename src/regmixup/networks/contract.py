"""The interface of all networks: images -> features -> logits, with input normalisation inside.

A network is a backbone, a `Constraint` on the backbone's weights (or none) and a `Head`. The last two are frozen
dataclasses of hyper-parameters, so that a configuration can hold them; the modules they make hold the state.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.config import check_choices
from regmixup.mixing import to_float

Normalization = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Constraint(ABC):
    """A bound on the weights of a backbone. A subclass declares its fields and implements `apply`."""

    def __post_init__(self) -> None:
        check_choices(self)

    @abstractmethod
    def apply(self, backbone: nn.Module, example: Tensor) -> None:
        """Parametrize the backbone's convolutions in place. example: (1, C, H, W), one image as it will see them."""


@dataclass(frozen=True, kw_only=True)
class Head(ABC):
    """The layer from features to logits. A subclass declares its fields and implements `build`."""

    def __post_init__(self) -> None:
        check_choices(self)

    @abstractmethod
    def build(self, feature_dim: int, num_classes: int) -> nn.Module:
        """Return a module from features (N, D) to logits (N, K)."""


@dataclass(frozen=True, kw_only=True)
class LinearHead(Head):
    """One linear layer with torch's own initialisation."""

    def build(self, feature_dim: int, num_classes: int) -> nn.Module:
        return nn.Linear(feature_dim, num_classes)


class HeadWithState(nn.Module):
    """A head with state that is not trained by gradients: a GP's precision, a kernel's centroids.

    `Classifier` passes it the features of clean images through these three callbacks; mixed images never reach them.
    """

    def start_epoch(self) -> None:
        """Handle the start of an epoch."""

    def wants_step(self) -> bool:
        """Return whether `after_step` does something; if not, the extra forward pass is skipped."""
        return False

    def after_step(self, features: Tensor, y: Tensor) -> None:
        """Update after an optimizer step on images with these features. y: (N,) classes or (N, K) probabilities."""

    def wants_finalizing(self) -> bool:
        """Return whether `finalize` does something."""
        return False

    def finalize(self, features: Iterable[Tensor]) -> None:
        """Update after training, given the features of all train images, batch by batch."""


class Normalize(nn.Module):
    """(x - mean) / std per channel, on pixels in [0, 1]; uint8 pixels are scaled first."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).reshape(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (to_float(x) - self.mean) / self.std

    def undo(self, x: Tensor) -> Tensor:
        """Return the pixels in [0, 1] of normalised ones."""
        return x * self.std + self.mean


class Classifier(nn.Module):
    """A network: `features(x) -> (N, D)`, then `head`: (N, D) -> logits (N, K).

    backbone: module from normalised images to (N, D). head: module from (N, D) to logits.
    normalize: (mean, std) per channel, or None if the images come normalised.

    A loop calls `start_epoch()`, `after_step(x, y)` and, at the end, `finalize(batches)`; they do nothing for heads
    without state of their own.
    """

    def __init__(
        self, backbone: nn.Module, head: nn.Module, *, feature_dim: int, normalize: Normalization | None = None
    ) -> None:
        super().__init__()
        self.normalize = Normalize(*normalize) if normalize is not None else None
        self.backbone = backbone
        self.head = head
        self.feature_dim = feature_dim

    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate activations, (N, D), of images (N, C, H, W) in uint8 or floating point."""
        x = to_float(x) if self.normalize is None else self.normalize(x)
        return self.backbone(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))

    def start_epoch(self) -> None:
        if isinstance(self.head, HeadWithState):
            self.head.start_epoch()

    def wants_step(self) -> bool:
        return isinstance(self.head, HeadWithState) and self.head.wants_step()

    def after_step(self, x: Tensor, y: Tensor) -> None:
        """Pass the head the features of a step's clean images, computed in evaluation mode."""
        if isinstance(self.head, HeadWithState) and self.wants_step():
            self.head.after_step(evaluated(self.backbone, x, self.features), y)

    def finalize(self, batches: Iterable[Tensor]) -> bool:
        """Pass the head the features of all train images after training, if it uses them; return whether it does."""
        if not (isinstance(self.head, HeadWithState) and self.head.wants_finalizing()):
            return False
        self.head.finalize(evaluated(self.backbone, x, self.features) for x in batches)
        return True


@torch.no_grad()
def evaluated(module: nn.Module, x: Tensor, function: Callable[[Tensor], Any] | None = None) -> Any:
    """Return function(x), by default module(x), with the module in evaluation mode, and leave it as it was."""
    training = module.training
    module.eval()
    try:
        return (function or module)(x)
    finally:
        module.train(training)


class OpenOODNet(nn.Module):
    """A network with the interface that OpenOOD's evaluator, its postprocessors and its ReAct, ASH and SCALE nets call.

    network: a `Classifier` with a linear head, such as `run.model()`. normalized: the (mean, std) by which OpenOOD's
    preprocessor has normalised the pixels, which this undoes, as the network normalises by itself; None for a
    preprocessor that leaves pixels in [0, 1], or a network without `normalize`.

    Postprocessors that look into the layers of OpenOOD's own ResNets (MDS ensemble, Gram, KNN before version 1.5) need
    these.
    """

    def __init__(self, network: Classifier, *, normalized: Normalization | None = None) -> None:
        super().__init__()
        if not isinstance(network.head, nn.Linear):
            head = type(network.head).__name__
            raise ValueError(f"network must have a linear head, whose weights OpenOOD reads, got {head}")
        self.network = network
        self.normalized = Normalize(*normalized) if normalized is not None else None
        self.feature_size = network.feature_dim

    @property
    def fc(self) -> nn.Linear:
        assert isinstance(self.network.head, nn.Linear)
        return self.network.head

    def forward(self, x: Tensor, return_feature: bool = False, return_feature_list: bool = False) -> Any:
        """Return logits (N, K); with features (N, D) as a second value; or with a list that ends in (N, D, 1, 1)."""
        features = self._features(x)
        logits = self.fc(features)
        if return_feature:
            return logits, features
        return (logits, [features[:, :, None, None]]) if return_feature_list else logits

    def forward_threshold(self, x: Tensor, threshold: float) -> Tensor:
        """Return the logits of features clipped from above (ReAct)."""
        return self.fc(self._features(x).clip(max=threshold))

    def get_fc(self) -> tuple[Any, Any]:
        """Return the head's weight (K, D) and bias (K,) as arrays."""
        return self.fc.weight.detach().cpu().numpy(), self.fc.bias.detach().cpu().numpy()

    def get_fc_layer(self) -> nn.Linear:
        return self.fc

    def _features(self, x: Tensor) -> Tensor:
        return self.network.features(x if self.normalized is None else self.normalized.undo(x))


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
    given: dict[str, Any] = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
    given |= {} if dropout is None else {"dropout": dropout}
    parameters = inspect.signature(factory).parameters.values()
    taken = {p.name for p in parameters}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):  # passed on to something unknown: give only what is needed
        taken |= {"num_classes", "dropout"} | ({"in_channels"} if in_channels != 3 else set())
    given = {key: value for key, value in given.items() if key in taken}
    if dropout is not None and "dropout" not in given:
        raise ValueError(f"dropout must be None for {name}, whose factory has no such parameter, got {dropout}")
    try:
        module = factory(**given)
        example = torch.rand(1, in_channels, *image_size)
        found = evaluated(module, example)
    except Exception as error:  # whatever the code of others raises
        raise ValueError(f"network {name} cannot be built with {given}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Tensor) or found.ndim != 2:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"network {name} must return logits (N, {num_classes}) or features (N, D), got {shape}")
    if "num_classes" not in given or found.shape[1] != num_classes:
        return module, found.shape[1], None
    for path, layer in reversed(list(module.named_modules())):
        if isinstance(layer, nn.Linear) and layer.out_features == num_classes and path:
            module.set_submodule(path, nn.Identity())
            features = evaluated(module, example)
            if features.shape == (1, layer.in_features) and torch.allclose(evaluated(layer, features), found):
                return module, layer.in_features, layer
            break
    raise ValueError(
        f"network {name} must end in an nn.Linear of {num_classes} outputs, so that it has features; or let its "
        "factory have no parameter num_classes and return the backbone, from images to features (N, D)"
    )
