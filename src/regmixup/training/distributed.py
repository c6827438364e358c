"""Several processes that train one model: ranks, how they agree, and the exchange of gradients."""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes that torchrun started, seen from one of them; alone, every answer is this process's own.

    All of them must call the same methods in the same order. Values travel between CPUs, tensors between the devices
    that they are on. steps_per_exchange: steps of training between two exchanges of whether to stop or save.
    """

    rank: int = 0
    world: int = 1
    steps_per_exchange: int = 1

    @property
    def is_first(self) -> bool:
        """Return whether this is the process that writes files."""
        return self.rank == 0

    def to_first(self, value: T) -> list[T]:
        """Return every rank's value, in rank order, on the first; nothing on the others."""
        if self.world == 1:
            return [value]
        values: list[T | None] | None = [None] * self.world if self.is_first else None
        dist.gather_object(value, values, dst=0)
        return values or []  # type: ignore[return-value]

    def from_first(self, value: T) -> T:
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first rank, in place."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def wait(self) -> None:
        self.largest_of(0)

    def largest_of(self, *values: int) -> list[int]:
        """Return the largest of all ranks' numbers, for each of them."""
        if self.world == 1:
            return list(values)
        numbers = torch.tensor(values)
        self.largest(numbers)
        return numbers.tolist()

    def largest(self, value: Tensor) -> None:
        """Replace a tensor by the largest of all ranks' in place, on its device."""
        if self.world > 1:
            dist.all_reduce(value, op=dist.ReduceOp.MAX)

    def sum(self, value: Tensor) -> None:
        """Replace a tensor by the sum of all ranks' in place, on its device."""
        if self.world > 1:
            dist.all_reduce(value)

    def rows(self, mine: Tensor, *, total: int) -> Tensor:
        """Return all ranks' rows, rank after rank, on their device. mine: (n, ...), of `total` dealt in turn."""
        if self.world == 1:
            return mine
        counts = [len(range(rank, total, self.world)) for rank in range(self.world)]
        padded = mine.new_zeros(counts[0], *mine.shape[1:])
        padded[: len(mine)] = mine
        gathered = mine.new_empty(self.world * counts[0], *mine.shape[1:])
        dist.all_gather_into_tensor(gathered, padded)
        return torch.cat([part[:count] for part, count in zip(gathered.split(counts[0]), counts, strict=True)])

    def share(self, count: int, *, unit: int) -> range:
        """Return which of `count` consecutive items are this rank's: whole units but for the last, as even as possible.

        >>> [Ranks(rank, 3).share(45, unit=10) for rank in range(3)]
        [range(0, 20), range(20, 40), range(40, 45)]
        """
        units = math.ceil(count / unit)
        start = math.ceil(self.rank * units / self.world) * unit
        stop = math.ceil((self.rank + 1) * units / self.world) * unit
        return range(min(start, count), min(stop, count))


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """Join the processes of torchrun: NCCL between GPUs, gloo between CPUs. Without torchrun this one is alone.

    A group that exists already is used. One that is made here stays until the program ends.
    """
    if not dist.is_initialized():
        if world_size() == 1:
            yield Ranks()
            return
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"device must be cpu or cuda for several processes, got {device.type}")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        store, rank, world = next(rendezvous("env://"))
        # torchrun keeps its store when it restarts processes, with the addresses of those that have died.
        store = PrefixStore(f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)} of {world}", store)
        # With gloo beside NCCL, messages between CPUs do not wait for the GPU.
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world)
        atexit.register(dist.destroy_process_group)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), steps_per_exchange=10 if device.type == "cuda" else 1)
    except BaseException:
        # An orderly shutdown would wait for ranks that wait for this one. Without it the end of this process closes
        # its connections, which ends the others.
        atexit.unregister(dist.destroy_process_group)
        raise


def world_size() -> int:
    """Return how many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
