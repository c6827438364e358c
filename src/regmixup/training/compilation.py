"""The training step for CUDA: torch.compile for the forward pass, one CUDA graph for the whole step."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regmixup.config import values_of
from regmixup.data.loader import Picked
from regmixup.data.splits import reseed
from regmixup.mixing import Draw, map_tensors
from regmixup.networks import layers
from regmixup.networks.precision import cudnn
from regmixup.training.shards import Shard
from regmixup.training.step import TrainingStep

_WARM_UPS = 3
_MOST = 8


class CompiledForward(nn.Module):
    """A compiled `step.ForwardPass`. sizes: the numbers of images to compile for.

    Another number, as in the last, partial batch of an epoch, is not worth compiling for.
    """

    def __init__(self, forward: nn.Module, sizes: Collection[int]) -> None:
        super().__init__()
        self.plain, self.sizes = forward, frozenset(sizes)
        options = compile_options(forward.get_submodule("model"))
        self._compiled = torch.compile(forward.forward, fullgraph=True, dynamic=False, options=options)

    def forward(self, picked: Any, draw: Draw) -> Any:
        if picked is None:
            return self.plain.forward(picked, draw)
        images = picked.index if isinstance(picked, Picked) else picked.x
        return self._compiled(picked, draw) if len(images) in self.sizes else self.plain.forward(picked, draw)


def compile_options(model: nn.Module) -> dict[str, Any]:
    """Return the options of torch.compile for a model.

    They are undocumented, and computing stays the same without them. So one that this torch does not have is left out.

    * Partitions of the graph are for torch's own CUDA graphs: without them compiling is a twentieth shorter.
    For models with the layers of `networks.layers`:
    * Their functions with a backward pass of their own are taken as they are: tracing through each of them makes
      compiling half as long again. Their source text is the key under which compiled code is cached for later runs.
    * The gradient before a batch norm is an expression of up to eight tensors (with ReLU, dropout and a sum of two
      gradients). It is not stored: that would be in float32, and read as often.
    """
    options: dict[str, Any] = {"graph_partition": False}
    if any(isinstance(module, layers.BatchNorm2d) for module in model.modules()):
        text = hashlib.sha256(Path(layers.__file__).read_bytes()).hexdigest()
        for function in layers.OPAQUE:
            torch.compiler.allow_in_graph(function)
        keys = {f"{function.__module__}.{function.__name__}": text for function in layers.OPAQUE}
        options |= {"unsafe_marked_cacheable_functions": keys, "realize_reads_threshold": 8}
    known = torch._inductor.list_options()
    return {name: setting for name, setting in options.items() if name in known}


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

    def __call__(self, shards: Sequence[Shard]) -> None:
        (shard,) = shards
        key = kind_of(shard.draw)
        if shard.count != self.full or (key not in self._graphs and len(self._graphs) == _MOST):
            deterministic = torch.backends.cudnn.deterministic
            with cudnn(benchmark=False, deterministic=deterministic):  # no search for a shape that comes once an epoch
                self.step(shards)
            return
        if key not in self._graphs:
            self._graphs[key] = self._capture(shard)
        fixed, graph = self._graphs[key]
        for target, source in zip(_tensors(fixed), _tensors(shard), strict=True):
            target.copy_(source, non_blocking=True)
        assert shard.seed is not None
        reseed(self.step.device, shard.seed)
        graph.replay()

    def _capture(self, shard: Shard) -> tuple[Shard, torch.cuda.CUDAGraph]:
        """Capture the step on inputs at fixed addresses. Neither warm-ups nor capturing change the state."""
        picked, draw = map_tensors(shard.picked, Tensor.clone), map_tensors(shard.draw, Tensor.clone)
        fixed = dataclasses.replace(shard, picked=picked, draw=draw, seed=None)
        before = [tensor.detach().clone() for tensor in self.step.tensors()]
        totals = self.step.tally.totals()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with uncollected():
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UPS):  # compilation, autotuning and allocations of libraries happen here
                    self.step([fixed])
            torch.cuda.current_stream().wait_stream(stream)
            self.step.optimizer.zero_grad(set_to_none=True)  # so that gradients are allocated inside the graph
            # The thread that pins the memory of loaded images may ask CUDA for more meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                self.step([fixed])
        self._pool = graph.pool()
        with torch.no_grad():
            for tensor, earlier in zip(self.step.tensors(), before, strict=True):
                tensor.copy_(earlier)
        self.step.tally.restore(totals)
        return fixed, graph


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the search for reference cycles, which takes a tenth of the time that torch.compile needs.

    While a graph is captured it must not run at all: the graph of an earlier run, found then, invalidates the capture.
    """
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
    fields = values_of(draw).values()
    return type(draw), *(field.shape if isinstance(field, Tensor) else field for field in fields)


def _tensors(shard: Shard) -> list[Tensor]:
    fields = [*values_of(shard.picked).values(), *values_of(shard.draw).values()]
    return [field for field in fields if isinstance(field, Tensor)]
