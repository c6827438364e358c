"""The training step as one CUDA graph: captured once, replayed at every step."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regmixup.data.splits import reseed
from regmixup.mixing import Draw
from regmixup.training.engine import cudnn
from regmixup.training.loop import Shard, TrainingStep

_WARM_UPS = 3
_MOST = 8


class CapturedStep:
    """A `TrainingStep` for which the host launches one graph instead of hundreds of kernels.

    A graph has fixed shapes and branches, so there is one for every kind of draw (see `kind_of`) that full batches
    have, and eight of them at most; what comes after those, and a partial batch, runs kernel by kernel.
    full: images of a full batch.
    """

    def __init__(self, step: TrainingStep, *, full: int) -> None:
        self.step, self.full = step, full
        self._graphs: dict[object, tuple[Shard, torch.cuda.CUDAGraph]] = {}
        self._pool: Any = None

    def __call__(self, shards: Sequence[Shard], *, total: int) -> None:
        (shard,) = shards
        key = kind_of(shard.draw)
        if shard.count != self.full or (key not in self._graphs and len(self._graphs) == _MOST):
            deterministic = torch.backends.cudnn.deterministic
            with cudnn(benchmark=False, deterministic=deterministic):  # no search for a shape that comes once an epoch
                self.step(shards, total=total)
            return
        if key not in self._graphs:
            self._graphs[key] = self._capture(shard)
        fixed, graph = self._graphs[key]
        for target, source in zip(_tensors(fixed), _tensors(shard), strict=True):
            target.copy_(source, non_blocking=True)
        assert shard.seed is not None
        reseed(self.step.tally.device, shard.seed)
        graph.replay()

    def _capture(self, shard: Shard) -> tuple[Shard, torch.cuda.CUDAGraph]:
        """Capture the step on inputs at fixed addresses. Neither warm-ups nor capturing change the state."""
        fixed = dataclasses.replace(shard, picked=_copy(shard.picked), draw=_copy(shard.draw), seed=None)
        before = [tensor.detach().clone() for tensor in self.step.tensors()]
        totals = self.step.tally.totals()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), uncollected():
            for _ in range(_WARM_UPS):  # compilation, autotuning and allocations of libraries happen here
                self.step([fixed], total=shard.count)
        torch.cuda.current_stream().wait_stream(stream)
        self.step.optimizer.zero_grad(set_to_none=True)  # so that gradients are allocated inside the graph
        graph = torch.cuda.CUDAGraph()
        # The thread that pins the memory of loaded images may ask CUDA for more meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            self.step([fixed], total=shard.count)
        self._pool = graph.pool()
        with torch.no_grad():
            for tensor, value in zip(self.step.tensors(), before, strict=True):
                tensor.copy_(value)
        self.step.tally.restore(totals)
        return fixed, graph


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the search for reference cycles, which takes a tenth of the time that torch.compile needs."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def kind_of(draw: Draw) -> tuple[object, ...]:
    """Return what a graph takes for granted about a draw: its type, the shapes of its tensors, its other values.

    >>> kind_of(Draw(partner=torch.tensor([1, 0]), branch=1))[1:]
    (None, torch.Size([2]), None, 1)
    """
    values = [getattr(draw, f.name) for f in dataclasses.fields(draw)]
    return type(draw), *(value.shape if isinstance(value, Tensor) else value for value in values)


def _tensors(shard: Shard) -> list[Tensor]:
    fields = [getattr(value, f.name) for value in (shard.picked, shard.draw) for f in dataclasses.fields(value)]
    return [value for value in fields if isinstance(value, Tensor)]


def _copy(value: Any) -> Any:
    """Return a dataclass with copies of its tensors."""
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return type(value)(**{name: v.clone() if isinstance(v, Tensor) else v for name, v in fields.items()})
