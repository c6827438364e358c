"""Batch-norm statistics: over the shards of a batch during training, estimated again afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from regmixup.data.decode import Decoder
from regmixup.data.images import LabelledImages
from regmixup.data.splits import generator_for
from regmixup.networks.contract import Classifier
from regmixup.networks.layers import batch_norms
from regmixup.training.config import TrainConfig
from regmixup.training.distributed import Ranks
from regmixup.types import Batch

REFRESH_BATCH = 512
"""Most images per batch when statistics are estimated again."""


class ShardedBuffers:
    """Buffers that forward passes update: the running statistics of batch norm, the vectors of power iterations.

    Every shard of a batch starts from the same b, and a step leaves b + sum over shards of (their share of the images)
    x (what they add to b): so it does not matter whether one process or several computed them.
    """

    def __init__(self, buffers: Iterable[Tensor], ranks: Ranks) -> None:
        self.buffers, self.ranks = [buffer for buffer in buffers if buffer.is_floating_point()], ranks

    def begin(self) -> None:
        self.before = [buffer.clone() for buffer in self.buffers]
        self.change = [torch.zeros_like(buffer) for buffer in self.buffers]

    @contextmanager
    def shard(self, share: float) -> Iterator[None]:
        """Collect the change by the forward pass of a shard with this share of the images."""
        for buffer, before in zip(self.buffers, self.before, strict=True):
            buffer.copy_(before)
        yield
        for buffer, before, change in zip(self.buffers, self.before, self.change, strict=True):
            change.add_(buffer - before, alpha=share)

    def end(self) -> None:
        """End a step: apply the changes of all shards, on all ranks."""
        if not self.buffers:
            return
        changes = flattened(self.change)
        self.ranks.sum(changes)
        parts = changes.split([buffer.numel() for buffer in self.buffers])
        for buffer, before, change in zip(self.buffers, self.before, parts, strict=True):
            torch.add(before, change.view_as(before), out=buffer)


def flattened(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


@contextmanager
def explaining_lone_images(config: TrainConfig, num_images: int) -> Iterator[None]:
    """Say what to change where batch norm meets one image alone whose features are a single pixel."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):  # torch's words
            raise
        raise ValueError(
            f"batch_size must leave two images or more to every shard of every batch, as the batch norm of "
            f"{config.network} cannot normalise one alone, got {config.batch_size} for {num_images} train images, in "
            f"shards: {config.num_shards}"
        ) from error


def drop_counters(model: nn.Module) -> None:
    """Remove the counters of batches, a kernel per layer and step, where no layer reads the count.

    For training alone: `reset_running_stats` and `torch.optim.swa_utils.update_bn` need the counters.
    """
    for module in model.modules():
        if isinstance(module, _BatchNorm) and module.momentum is not None:
            module.num_batches_tracked = None


def refresh_batches(dataset: LabelledImages, decode: Decoder) -> Iterator[Tensor]:
    """Yield every image of a dataset once, without augmentation, in batches of at most 512 and of even size.

    The order is random, as folders are sorted by class, and always the same.
    """
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))
    for index in order.tensor_split(-(-len(dataset) // REFRESH_BATCH)):
        for part in dataset.select(index).parts(decode):
            yield part.images


@contextmanager
def refreshing(model: nn.Module) -> Iterator[None]:
    """Estimate the running statistics of batch norm again, from the forward passes inside; all else stays.

    The new statistics are the means over passes, as those of `torch.optim.swa_utils.update_bn`. Unlike there, batch
    norm alone is in training mode: dropout, power iterations and heads see an evaluation.
    """
    layers = batch_norms(model)
    if not layers:
        raise ValueError("the network must have batch norm for its statistics to be refreshed, found no such layer")
    before = [(layer.momentum, layer.num_batches_tracked) for layer in layers]
    model.eval()
    for layer in layers:
        if layer.num_batches_tracked is None:  # in training, see `drop_counters`
            layer.num_batches_tracked = torch.zeros((), dtype=torch.int64)
        layer.reset_running_stats()
        # Not `layer.train()`, which would reach what timm's layers hold: an activation, dropout.
        layer.momentum, layer.training = None, True
    with torch.no_grad():
        yield
    for layer, (momentum, counter) in zip(layers, before, strict=True):
        layer.momentum, layer.num_batches_tracked, layer.training = momentum, counter, False


def forward_mixture(model: Classifier, config: TrainConfig, batches: Iterable[Batch]) -> None:
    """Forward what the objective makes of batches, mixed images included. batches: see `loading.one_more_epoch`."""
    for step, batch in enumerate(batches):
        generator = generator_for(config.seed, "draw", config.total_epochs, step)
        with torch.set_grad_enabled(config.objective.differentiates_twice):  # a penalty is one of gradients
            config.objective(model, batch.x, batch.y, generator=generator)
