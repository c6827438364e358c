"""The training step of a run: `train_step`, and around it guard, shards, ranks, clipping and the running mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regmixup.data.splits import reseed
from regmixup.mixing import Draw
from regmixup.networks.precision import autocast
from regmixup.training.batch_norm import Statistics
from regmixup.training.guard import Guard
from regmixup.training.loop import ForwardPass, ShardLoss, train_step
from regmixup.training.optim import WeightMean
from regmixup.training.reporting import Tally
from regmixup.training.shards import Shard
from regmixup.training.sharpness import SAM


class TrainingStep:
    """One update of the weights, in which nothing is read from the device, so that a CUDA graph can capture it.

        of each shard: seed dropout, forward, backward       `train_step`; ranks exchange gradients after the last
        combine batch-norm statistics over shards and ranks
        take the gradient again where the loss is high nearby, where the recipe wants that (SAM)
        check loss, gradient and buffers
        clip the gradient, update the weights
        update the head, where it learns from clean images
        update the running mean of the weights

    forward: the forward pass. wrapped: the same as torch.compile and DDP wrap it; default: as it is.
    ema: the running mean of the weights, if there is one. sharpness: SAM, if the recipe has it.
    """

    def __init__(
        self,
        forward: ForwardPass,
        optimizer: torch.optim.Optimizer,
        guard: Guard,
        tally: Tally,
        *,
        ema: WeightMean | None = None,
        sharpness: SAM | None = None,
        wrapped: nn.Module | None = None,
    ) -> None:
        self.model, self.config, self.loader = forward.model, forward.config, forward.loader
        self.device = forward.loader.device
        self.forward: nn.Module = forward if wrapped is None else wrapped
        self.optimizer, self.guard, self.tally = optimizer, guard, tally
        self.ema, self.sharpness = ema, sharpness
        buffers = self.model.backbone.buffers() if self.config.num_shards > 1 else ()
        self.statistics = Statistics(buffers, guard.ranks)

    def __call__(self, shards: Sequence[Shard]) -> None:
        """Take one step. shards: this rank's."""
        self.statistics.begin()
        complete = partial(self._before_update, shards)
        train_step(self.forward, self.optimizer, self._in_turn(shards), before_update=complete)
        if hasattr(self.model.head, "after_step"):
            self._update_head(shards)
        if self.ema is not None:
            self.ema.update()

    def _in_turn(self, shards: Sequence[Shard]) -> Iterator[Shard]:
        """Yield each shard for its forward and backward pass, and prepare and clear up around these."""
        for shard in shards:
            if shard.seed is not None:
                reseed(self.device, shard.seed)
            early, forward = shard is not shards[-1], self.forward
            waiting = forward.no_sync() if early and isinstance(forward, DistributedDataParallel) else nullcontext()
            with waiting, self.statistics.shard(shard.count / shard.total):
                yield shard if shard.count else replace(shard, picked=None)

    def _before_update(self, shards: Sequence[Shard], outputs: Sequence[ShardLoss]) -> None:
        """Report the losses, combine statistics, take SAM's gradient, check that all is finite, and clip."""
        for shard, output in zip(shards, outputs, strict=True):
            self.tally.add(output.names, output.sums, shard.count)
        self.statistics.end()
        if self.sharpness is not None:
            self.statistics.begin()  # every shard starts from the new buffers, to which `ascended` returns
            with self.sharpness.ascended():
                for shard in self._in_turn(shards):
                    (self.forward(shard.picked, shard.draw).loss * shard.weight).backward()
        norm = self.guard.check_step([output.loss for output in outputs], self.model.parameters())
        if self.config.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.clip_norm, norm)

    def _update_head(self, shards: Sequence[Shard]) -> None:
        """Show the clean images of all ranks to a head that learns from them beside the gradient."""
        ranks, total = self.guard.ranks, shards[0].total
        batches = [self.loader.load(shard.picked) for shard in shards]
        x, y = torch.cat([batch.x for batch in batches]), torch.cat([batch.y for batch in batches])
        with autocast(self.config.precision, self.device):
            self.model.after_step(ranks.rows(x, total=total), ranks.rows(y, total=total))

    def tensors(self) -> list[Tensor]:
        """Return all that a step changes, apart from the tally."""
        states = self.optimizer.state.values()
        momenta = [tensor for state in states for tensor in state.values() if torch.is_tensor(tensor)]
        mean = self.ema.state().values() if self.ema is not None else ()
        sharpness = self.sharpness.state().values() if self.sharpness is not None else ()
        return [*self.model.parameters(), *self.model.buffers(), *momenta, *mean, *sharpness, *self.guard.tensors()]


def distribute(forward: nn.Module) -> DistributedDataParallel:
    """Wrap a forward pass so that ranks average their gradients, and run one backward pass without images.

    DDP puts gradients into buckets in the order in which they came the first time, and three or more numbers have a sum
    that depends on their place there. So the first step of a resumed run must not be DDP's first.
    """
    wrapped = DistributedDataParallel(forward)
    wrapped(None, Draw()).loss.backward()
    return wrapped
