"""Several processes that train one model: who takes part, and how they agree."""

from __future__ import annotations

import atexit
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

T = TypeVar("T")

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """The processes that torchrun started, seen from one of them; alone, every answer is this process's own.

    All of them must call the same methods in the same order. Values travel between CPUs, tensors between the devices
    that they are on. stride: steps of training from one talk about what else there is to do to the next.
    """

    rank: int = 0
    world: int = 1
    stride: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in their order."""
        if self.world == 1:
            return [value]
        values: list[T | None] = [None] * self.world
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def to_first(self, value: T) -> list[T]:
        """Every rank's value, in their order, on the first; nothing on the others. One message after the other."""
        if not self.first:
            dist.send_object_list([value], dst=0, device=_CPU)
            return []
        values = [value]
        for rank in range(1, self.world):
            received: list[T | None] = [None]
            dist.recv_object_list(received, src=rank, device=_CPU)
            values += received  # type: ignore[arg-type]
        return values

    def from_first(self, value: T) -> T:
        """The first rank's value."""
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
        """Until every rank is here."""
        self.gather(None)

    def meets_at(self, step: int) -> bool:
        """Whether ranks talk to each other after this step."""
        return step % self.stride == self.stride - 1

    def largest_of(self, *values: int) -> list[int]:
        """The largest of all ranks' numbers, for each of them."""
        if self.world == 1:
            return list(values)
        found = torch.tensor(values)
        self.largest(found)
        return found.tolist()

    def largest(self, value: Tensor) -> None:
        """Replace a tensor by the largest of all ranks' in place, on its device."""
        if self.world > 1:
            dist.all_reduce(value, op=dist.ReduceOp.MAX)

    def sum(self, value: Tensor) -> None:
        """Replace a tensor by the sum of all ranks' in place, on its device."""
        if self.world > 1:
            dist.all_reduce(value)

    def rows(self, mine: Tensor, *, total: int) -> Tensor:
        """All ranks' rows, one rank's after the other's, on their device. mine: (n, ...), of `total` dealt in turn."""
        if self.world == 1:
            return mine
        counts = [len(range(rank, total, self.world)) for rank in range(self.world)]
        padded = mine.new_zeros(counts[0], *mine.shape[1:])
        padded[: len(mine)] = mine
        found = mine.new_empty(self.world * counts[0], *mine.shape[1:])
        dist.all_gather_into_tensor(found, padded)
        return torch.cat([part[:count] for part, count in zip(found.split(counts[0]), counts, strict=True)])

    def share(self, count: int, *, unit: int) -> range:
        """Which of `count` things in a row are this rank's: whole units, but for the last, as even as they go.

        >>> [Ranks(rank, 3).share(45, unit=10) for rank in range(3)]
        [range(0, 20), range(20, 40), range(40, 45)]
        """
        units = -(-count // unit)
        start, stop = (-(-rank * units // self.world) * unit for rank in (self.rank, self.rank + 1))
        return range(min(start, count), min(stop, count))


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """This process among those of torchrun: NCCL between GPUs, gloo between CPUs. Without torchrun it is alone.

    A group that exists already is used. One that is made here stays until the program ends.
    """
    if not (dist.is_available() and dist.is_initialized()):
        if world_size() == 1:
            yield Ranks()
            return
        _join(device)
    ranks = Ranks(dist.get_rank(), dist.get_world_size(), stride=10 if device.type == "cuda" else 1)
    try:
        yield ranks
    except BaseException:
        # Taking leave in good order would wait for ranks that wait for this one. Without it the end of this process
        # closes its connections, which ends the others.
        atexit.unregister(dist.destroy_process_group)
        raise


def _join(device: torch.device) -> None:
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu or cuda for several processes, got {device.type}")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, rank, world = next(rendezvous("env://"))
    # With gloo beside NCCL, what is said between CPUs does not wait for the GPU.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=_fresh(store, rank, world), rank=rank, world_size=world)
    atexit.register(dist.destroy_process_group)
    if device.type == "cuda":
        ranks = Ranks(rank, world)
        check_own_gpus(ranks.gather((socket.gethostname(), str(torch.cuda.get_device_properties(device).uuid))))


def _fresh(store: Store, rank: int, world: int) -> Store:
    """A part of the store that no earlier processes have used.

    torchrun keeps its store when it restarts processes, with the addresses of those that have died. So the first rank
    names a new part, and says so to everyone who asks under a new name of their own, until they have heard it.
    """
    name = uuid.uuid4().hex
    if rank > 0:
        store.set(f"asks/{rank}", name)
        name = store.get(f"answer/{name}").decode()
        store.set(f"{name}/heard/{rank}", "")
        return PrefixStore(name, store)
    missing = list(range(1, world))
    while missing:
        for other in missing:
            store.set(f"answer/{store.get(f'asks/{other}').decode()}", name)
        time.sleep(0.02)
        missing = [other for other in missing if not store.check([f"{name}/heard/{other}"])]
    return PrefixStore(name, store)


def check_own_gpus(places: Sequence[tuple[str, str]]) -> None:
    """Refuse processes that share a GPU, which NCCL cannot serve. places: each one's host and GPU."""
    (host, gpu), count = Counter(places).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"every process must have a GPU of its own, got {count} on {gpu} of {host}: start at most as many "
            "processes per node as it has GPUs, and leave device out or say cuda"
        )


def world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
