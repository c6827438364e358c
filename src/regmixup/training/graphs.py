"""An update as one CUDA graph: recorded once, replayed at every step."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regmixup.data.seeds import reseed
from regmixup.mixing import Draw
from regmixup.training.engine import cudnn
from regmixup.training.step import Part
from regmixup.training.update import Update

_REHEARSALS = 3
_MOST = 8


class CapturedUpdate:
    """The same as its `Update`, but the host launches one thing per step instead of hundreds of kernels.

    A graph has fixed shapes and branches, so there is one for every variety of the draw (see `variety`) that full
    batches have, and eight of them at most; what comes after those, and a partial batch, runs kernel by kernel.
    full: images of a full batch.
    """

    def __init__(self, update: Update, *, full: int) -> None:
        self.update, self.full = update, full
        self._graphs: dict[object, tuple[Part, torch.cuda.CUDAGraph]] = {}
        self._pool: Any = None

    def __call__(self, parts: Sequence[Part], *, total: int) -> None:
        (part,) = parts
        key = variety(part.draw)
        if part.count != self.full or (key not in self._graphs and len(self._graphs) == _MOST):
            deterministic = torch.backends.cudnn.deterministic
            with cudnn(benchmark=False, deterministic=deterministic):  # no search for a shape that comes once an epoch
                self.update(parts, total=total)
            return
        if key not in self._graphs:
            self._graphs[key] = self._capture(part)
        fixed, graph = self._graphs[key]
        for target, source in zip(_tensors(fixed), _tensors(part), strict=True):
            target.copy_(source, non_blocking=True)
        assert part.seed is not None
        reseed(self.update.tally.device, part.seed)
        graph.replay()

    def _capture(self, part: Part) -> tuple[Part, torch.cuda.CUDAGraph]:
        """Record the update on inputs at fixed places. Neither rehearsals nor recording leave a trace in the state."""
        fixed = dataclasses.replace(part, picked=_copy(part.picked), draw=_copy(part.draw), seed=None)
        before = [tensor.detach().clone() for tensor in self.update.tensors()]
        totals = self.update.tally.totals()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), uncollected():
            for _ in range(_REHEARSALS):  # compilation, autotuning and allocations of libraries happen here
                self.update([fixed], total=part.count)
        torch.cuda.current_stream().wait_stream(stream)
        self.update.optimizer.zero_grad(set_to_none=True)  # so that gradients are allocated inside the graph
        graph = torch.cuda.CUDAGraph()
        # The thread that pins the memory of loaded images may ask CUDA for more meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            self.update([fixed], total=part.count)
        self._pool = graph.pool()
        with torch.no_grad():
            for tensor, value in zip(self.update.tensors(), before, strict=True):
                tensor.copy_(value)
        self.update.tally.restore(totals)
        return fixed, graph


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for reference cycles: it would take a tenth of the time in which torch.compile makes its objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def variety(draw: Draw) -> tuple[object, ...]:
    """What a graph takes for granted about a draw: its type, the shapes of its tensors, and all else it holds.

    >>> variety(Draw(partner=torch.tensor([1, 0]), branch=1))[1:]
    (None, torch.Size([2]), None, 1)
    """
    values = [getattr(draw, f.name) for f in dataclasses.fields(draw)]
    return type(draw), *(value.shape if isinstance(value, Tensor) else value for value in values)


def _tensors(part: Part) -> list[Tensor]:
    fields = [getattr(value, f.name) for value in (part.picked, part.draw) for f in dataclasses.fields(value)]
    return [value for value in fields if isinstance(value, Tensor)]


def _copy(value: Any) -> Any:
    """A dataclass with copies of its tensors."""
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return type(value)(**{name: v.clone() if isinstance(v, Tensor) else v for name, v in fields.items()})
