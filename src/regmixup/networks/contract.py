"""The interface of all networks: images -> features -> logits, with input normalisation inside.

A network is a backbone, a constraint on the backbone's weights (or none) and a `Head`. The last two are frozen
dataclasses of hyper-parameters, so that a configuration can hold them; the modules they make hold the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.config import Checked
from regmixup.mixing import to_float

Normalization = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class Head(Checked, ABC):
    """The layer from features to logits. A subclass declares its fields and implements `build`."""

    @abstractmethod
    def build(self, feature_dim: int, num_classes: int) -> nn.Module:
        """Return a module from features (N, D) to logits (N, K).

        A module with state that gradients do not train has one of two more methods, which get the features of clean
        images and never of mixed ones: after_step(features, y), after every step, with y (N,) classes or (N, K)
        probabilities; finalize(batches of features), after training, for all train images.
        """


@dataclass(frozen=True, kw_only=True)
class LinearHead(Head):
    """One linear layer with torch's own initialisation."""

    def build(self, feature_dim: int, num_classes: int) -> nn.Module:
        return nn.Linear(feature_dim, num_classes)


@dataclass(frozen=True, kw_only=True)
class RotationHead(Head):
    """A linear head, the model's logits and all else, with a second one, `rotation`, for `objectives.Rotation`."""

    def build(self, feature_dim: int, num_classes: int) -> nn.Module:
        head = nn.Linear(feature_dim, num_classes)  # first, so that it begins as a linear head of the same seed does
        head.rotation = nn.Linear(feature_dim, 4)
        return head


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


class Classifier(nn.Module):
    """A network: `features(x) -> (N, D)`, then `head`: (N, D) -> logits (N, K).

    backbone: module from normalised images to (N, D). head: module from (N, D) to logits.
    normalize: (mean, std) per channel, or None if the images come normalised.

    A loop calls `after_step(x, y)` and, at the end, `finalize(batches)`; they do nothing for heads without state.
    """

    def __init__(
        self, backbone: nn.Module, head: nn.Module, *, feature_dim: int, normalize: Normalization | None = None
    ) -> None:
        super().__init__()
        self.normalize = Normalize(*normalize) if normalize is not None else None
        self.backbone = backbone
        self.head = head
        self.feature_dim = feature_dim
        self.frozen: list[nn.Parameter] = []  # weights that training excludes for now, see `optim.set_frozen`

    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate activations, (N, D), of images (N, C, H, W) in uint8 or floating point."""
        x = to_float(x) if self.normalize is None else self.normalize(x)
        return self.backbone(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))

    def after_step(self, x: Tensor, y: Tensor) -> None:
        """Pass the head the features of a step's clean images, computed in evaluation mode."""
        update = getattr(self.head, "after_step", None)
        if update is not None:
            update(evaluated(self.backbone, x, self.features), y)

    def finalize(self, batches: Iterable[Tensor]) -> bool:
        """Pass the head the features of all train images after training, if it uses them; return True if it does."""
        update = getattr(self.head, "finalize", None)
        if update is not None:
            update(evaluated(self.backbone, x, self.features) for x in batches)
        return update is not None


@torch.no_grad()
def evaluated(module: nn.Module, x: Tensor, function: Callable[[Tensor], Any] | None = None) -> Any:
    """Return function(x), by default module(x), with the module in evaluation mode, and leave it as it was."""
    with evaluation_mode(module):
        return (function or module)(x)


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode; at the end every part of it is back in the mode that it was in."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():  # from the outside in, as `train` sets the parts inside, too
            if part.training != training:
                part.train(training)  # not the attribute: a layer that folds weights for evaluation takes them apart
        for part, training in modes.items():  # one that stands in several places has the mode of the last by now
            part.training = training
