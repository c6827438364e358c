"""Several processes that train one model: who takes part, and how they agree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The processes that torchrun started, seen from one of them; alone, every answer is this process's own."""

    rank: int = 0
    world: int = 1

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

    def from_first(self, value: T) -> T:
        """The first rank's value."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def any(self, flag: bool) -> bool:
        """Whether the flag is up on any rank."""
        return flag if self.world == 1 else any(self.gather(flag))

    def meets_at(self, step: int) -> bool:
        """Whether ranks talk to each other after this step: alone at every one, else at every tenth."""
        return self.world == 1 or step % 10 == 9

    def wait(self) -> None:
        """Until every rank is here."""
        self.gather(None)

    def largest(self, value: torch.Tensor) -> None:
        """Replace a tensor by the largest of all ranks' in place, on its device."""
        if self.world > 1:
            dist.all_reduce(value, op=dist.ReduceOp.MAX)


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """This process among those of torchrun: NCCL between GPUs, gloo between CPUs. Without torchrun it is alone."""
    if dist.is_available() and dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size())
    elif world_size() == 1:
        yield Ranks()
    else:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
        try:
            yield Ranks(dist.get_rank(), dist.get_world_size())
        finally:
            dist.destroy_process_group()


def world_size() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
