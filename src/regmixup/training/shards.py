"""Shards: the parts of a batch, forwarded one after the other or by several processes, and the randomness of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regmixup.data.splits import generator_for, seed_for
from regmixup.mixing import Draw
from regmixup.training.parts import Parts


@dataclass(frozen=True)
class Shard:
    """One shard of a batch: the input of one forward and backward pass.

    picked: which images, see `Loader.picks`. draw: the objective's randomness. count: number of images; may be 0.
    total: images of the whole batch, over all ranks. weight: factor of its mean loss in the gradient of the batch.
    seed: for dropout; None leaves the generator as it is.
    """

    picked: Any
    draw: Draw
    count: int
    total: int
    weight: float
    seed: int | None

    @property
    def share(self) -> float:
        """Return its share of the images of the batch."""
        return self.count / self.total


def draw_shards(parts: Parts, picked: Sequence[Any], *, epoch: int, step: int, total: int) -> list[Shard]:
    """Draw the randomness of this process's shards of a batch. picked: the images of each. total: of the batch.

    The weight of a shard is its share of the images, times the number of ranks, as DDP averages over these.
    """
    config, world, shards = parts.config, parts.ranks.world, []
    largest = -(-total // config.num_shards)
    for number, images in zip(parts.shard_numbers, picked, strict=True):
        count = len(range(number, total, config.num_shards))
        draw = draw_shard(parts, number, max(count, 1), epoch=epoch, step=step)
        if config.objective.per_batch and count < largest:
            draw = agreeing(draw, draw_shard(parts, number, largest, epoch=epoch, step=step))
        seed = seed_for(config.seed, "dropout", epoch, step, number)
        shards.append(Shard(images, draw.to(parts.device), count, total, count / total * world, seed))
    # Alone, a process leaves out a shard that a small last batch leaves empty; ranks must all take part.
    return [shard for shard in shards if shard.count or world > 1]


def draw_shard(parts: Parts, number: int, count: int, *, epoch: int, step: int) -> Draw:
    """Draw the objective's randomness for `count` images of the shard with this number."""
    config = parts.config
    of_batch = generator_for(config.seed, "draw", epoch, step)
    of_shard = generator_for(config.seed, "draw", epoch, step, number)
    if config.objective.per_batch and number == 0:
        of_shard = of_batch  # so that a batch of one shard draws as `objective.draw` does, from one generator
    return config.objective.draw_part(count, parts.shape, shared=of_batch, own=of_shard)


def agreeing(draw: Draw, largest: Draw) -> Draw:
    """Return a draw with the lambda and box of the largest shard's, where they are the batch's and not the images' own.

    A stream that has also drawn partners for fewer images has other numbers after them.
    """
    pairs = {name: (getattr(draw, name), getattr(largest, name)) for name in ("lam", "box")}
    shared = {name: theirs for name, (mine, theirs) in pairs.items() if mine is not None and mine.shape == theirs.shape}
    return dataclasses.replace(draw, **shared)
