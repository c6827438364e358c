"""The training step: the objective's forward pass on each shard of a batch, backward, checks, and the update.

Before a step, on the CPU, the loader picks images and how they are augmented (`Loader.picks`), and the objective draws
lambda, partners and boxes (`Training.draw_shards` in loop.py). torch.compile and CUDA graphs are in compilation.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regmixup.data.loader import Loader
from regmixup.data.splits import reseed
from regmixup.metrics.pieces import precise
from regmixup.mixing import Draw
from regmixup.networks.contract import Classifier
from regmixup.networks.precision import autocast
from regmixup.training.batch_norm import ShardedBuffers
from regmixup.training.config import TrainConfig
from regmixup.training.guard import Guard
from regmixup.training.reporting import Tally
from regmixup.training.shards import Shard
from regmixup.training.sharpness import SAM
from regmixup.training.weight_copies import WeightMean


class ShardLoss(NamedTuple):
    """The mean loss over a shard, and what is reported of it: sums over its images, one for each name."""

    loss: Tensor
    names: tuple[str, ...]
    sums: Tensor


class ForwardPass(nn.Module):
    """Compute the loss from picked images and a draw, on the device alone; draws dropout, and moves the buffers."""

    def __init__(self, model: Classifier, config: TrainConfig, loader: Loader) -> None:
        super().__init__()
        self.model, self.config, self.loader = model, config, loader

    def forward(self, picked: Any, draw: Draw) -> ShardLoss:
        """Return the loss of a shard; of one without images (picked: None) a 0, for the exchange of gradients alone."""
        if picked is None:
            nothing = torch.stack([(0 * parameter).sum() for parameter in self.model.parameters()]).sum()
            return ShardLoss(nothing, (), nothing.detach())
        batch = self.loader.load(picked)  # takes the images and augments them
        with autocast(self.config.precision, self.loader.device):
            output = self.config.objective(self.model, batch.x, batch.y, draw=draw)
        count = len(batch.x)
        sums = {"loss": output.loss.detach() * count, **{name: part * count for name, part in output.parts.items()}}
        if output.logits is not None:
            sums["train_accuracy"] = (output.logits.detach().argmax(dim=1) == batch.y).sum()
        return ShardLoss(output.loss, tuple(sums), torch.stack([precise(total) for total in sums.values()]))


class TrainingStep:
    """One update of the weights, in which nothing is read from the device, so that a CUDA graph can capture it.

    forward: the forward pass, which torch.compile and DDP may wrap later.
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
    ) -> None:
        self.model, self.config, self.loader = forward.model, forward.config, forward.loader
        self.device = forward.loader.device
        self.forward: nn.Module = forward
        self.optimizer, self.guard, self.tally, self.ranks = optimizer, guard, tally, guard.ranks
        self.ema, self.sharpness = ema, sharpness
        buffers = self.model.backbone.buffers() if self.config.num_shards > 1 else ()
        self.sharded_buffers = ShardedBuffers(buffers, self.ranks)

    def __call__(self, shards: Sequence[Shard]) -> None:
        """Take one step. shards: this rank's."""
        self.optimizer.zero_grad(set_to_none=True)
        outputs = self._backward(shards)
        self.sharded_buffers.end()
        for shard, output in zip(shards, outputs, strict=True):
            self.tally.add(output.names, output.sums, shard.count)
        if self.sharpness is not None:
            with self.sharpness.ascended():  # which drops the gradient, and puts weights and buffers back at its end
                self._backward(shards)
        norm = self.guard.check_step([output.loss for output in outputs], self.model.parameters())
        if self.config.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.clip_norm, norm)
        self.optimizer.step()
        if hasattr(self.model.head, "after_step"):
            self._update_head(shards)
        if self.ema is not None:
            self.ema.update()

    def _backward(self, shards: Sequence[Shard]) -> list[ShardLoss]:
        """Forward and backward each shard: the gradients add up to that of the mean loss over the batch.

        That is the sum of (share of the images) x (gradient of the mean loss over the shard). Ranks exchange gradients
        after their last shard, and take the mean, so that each multiplies its share by their number.
        """
        self.sharded_buffers.begin()
        outputs = []
        for shard in shards:
            if shard.seed is not None:
                reseed(self.device, shard.seed)
            exchange: AbstractContextManager[None] = nullcontext()
            if shard is not shards[-1] and isinstance(self.forward, DistributedDataParallel):
                exchange = self.forward.no_sync()
            share = shard.count / shard.batch_images
            with exchange, self.sharded_buffers.shard(share):
                output: ShardLoss = self.forward(shard.picked if shard.count else None, shard.draw)
                (output.loss * (share * self.ranks.world)).backward()
            outputs.append(output)
        return outputs

    def _update_head(self, shards: Sequence[Shard]) -> None:
        """Show the clean images of all ranks to a head that learns from them beside the gradient."""
        ranks, total = self.ranks, shards[0].batch_images
        batches = [self.loader.load(shard.picked) for shard in shards]
        x, y = torch.cat([batch.x for batch in batches]), torch.cat([batch.y for batch in batches])
        with autocast(self.config.precision, self.device):
            self.model.after_step(ranks.rows(x, total=total), ranks.rows(y, total=total))

    def tensors(self) -> list[Tensor]:
        """Return all that a step changes, apart from the tally."""
        states = [*self.optimizer.state.values()]
        states += [part.state() for part in (self.ema, self.sharpness) if part is not None]
        tensors = [tensor for state in states for tensor in state.values() if torch.is_tensor(tensor)]
        return [*self.model.parameters(), *self.model.buffers(), *tensors, self.guard.step, self.guard.bad_step]


def distribute(forward: nn.Module) -> DistributedDataParallel:
    """Wrap a forward pass so that ranks average their gradients, and run one backward pass without images.

    DDP puts gradients into buckets in the order in which they came the first time, and three or more numbers have a sum
    that depends on their place there. So the first step of a resumed run must not be DDP's first.
    """
    wrapped = DistributedDataParallel(forward)
    wrapped(None, Draw()).loss.backward()
    return wrapped
