"""One update of the weights: passes over the parts of a batch, the guard, the optimizer, what the head keeps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regmixup.data.seeds import reseed
from regmixup.mixing import Draw
from regmixup.training.batch_norm import Statistics
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
        several = step.config.num_shards > 1
        self.statistics = Statistics(step.model.backbone.buffers() if several else (), self.ranks)
        self.through: nn.Module = step
        if self.ranks.world > 1:
            self.through = DistributedDataParallel(step)
            self._rehearse()

    def __call__(self, parts: Sequence[Part], *, total: int) -> None:
        """parts: this rank's. total: images of the batch, over all ranks."""
        self.guard.remember()
        self.optimizer.zero_grad(set_to_none=True)
        self.statistics.begin()
        losses = []
        for index, part in enumerate(parts):
            if part.seed is not None:
                reseed(self.tally.device, part.seed)
            share = part.count / total
            with self._exchange(last=index == len(parts) - 1), self.statistics.part(share):
                loss, names, sums = self.through(part)
                (loss * (share * self.ranks.world)).backward()
            self.tally.add(names, sums, part.count)
            losses.append(loss)
        self.statistics.end()
        self.guard.watch(losses, self.step.model.parameters())
        self.optimizer.step()
        self.step.after(parts, self.ranks, total=total)

    def _rehearse(self) -> None:
        """Let DDP see one backward pass, of nothing.

        It puts gradients into buckets in the order in which they came the first time, and three or more numbers have a
        sum that depends on their place there. So the first step of a resumed run must not be DDP's first.
        """
        loss, _, _ = self.through(Part(None, Draw(), count=0, seed=None))
        loss.backward()

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
