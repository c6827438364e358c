"""One update of the weights: passes over the parts of a batch, the guard, the optimizer, what the head keeps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regmixup.training.guard import Guard
from regmixup.training.step import Part, Step
from regmixup.training.tally import Tally


class Updating(Protocol):
    """What the loop calls at every step."""

    def __call__(self, parts: Sequence[Part], *, total: int) -> None: ...


class Update:
    """One update, in which nothing is read from the device.

    The gradient is that of the mean loss over the whole batch: the sum over parts of (their share of the images) x
    (their mean loss). DDP averages over ranks, so shares are multiplied by the number of ranks.
    """

    def __init__(self, step: Step, optimizer: torch.optim.Optimizer, guard: Guard, tally: Tally) -> None:
        self.step, self.optimizer, self.guard, self.tally = step, optimizer, guard, tally
        self.ranks = guard.ranks
        self.through: nn.Module = DistributedDataParallel(step) if self.ranks.world > 1 else step

    def __call__(self, parts: Sequence[Part], *, total: int) -> None:
        """parts: this rank's. total: images of the batch, over all ranks."""
        self.guard.remember()
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for index, part in enumerate(parts):
            if part.seed is not None:
                torch.manual_seed(part.seed)
            with self._exchange(last=index == len(parts) - 1):
                loss, names, sums = self.through(part)
                (loss * (part.count * self.ranks.world / total)).backward()
            self.tally.add(names, sums, part.count)
            losses.append(loss)
        self.guard.watch(losses, self.step.model.parameters())
        self.optimizer.step()
        self.step.after(parts, self.ranks)

    def _exchange(self, *, last: bool) -> AbstractContextManager[None]:
        """Ranks exchange gradients once per update, after the last part."""
        if isinstance(self.through, DistributedDataParallel) and not last:
            return self.through.no_sync()
        return nullcontext()

    def tensors(self) -> list[Tensor]:
        """All that an update changes, apart from the tally."""
        model, states = self.step.model, self.optimizer.state.values()
        momenta = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        return [*model.parameters(), *model.buffers(), *momenta, *self.guard.tensors()]
