"""Copies of a model's weights beside its own: means over steps (EMA) or epochs (SWA); see also `Selection`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regmixup.networks.constraints import power_vectors
from regmixup.training.optim import rate_type


class WeightCopy:
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


class WeightMean(WeightCopy):
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
