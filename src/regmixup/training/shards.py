"""Shards: the parts of a batch, forwarded one after the other or by several processes, and the randomness of each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from regmixup.data.splits import generator_for
from regmixup.mixing import Draw
from regmixup.training.config import TrainConfig


@dataclass(frozen=True)
class Shard:
    """One shard of a batch: the input of one forward and backward pass.

    picked: which images, see `Loader.picks`. draw: the objective's randomness. count: number of images; may be 0.
    total: images of the whole batch, over all ranks. seed: for dropout; None leaves the generator as it is.
    """

    picked: Any
    draw: Draw
    count: int
    total: int
    seed: int | None


def draw_shard(
    config: TrainConfig, number: int, count: int, *, shape: tuple[int, int, int], epoch: int, step: int
) -> Draw:
    """Draw the objective's randomness for `count` images of the shard with this number."""
    of_batch = generator_for(config.seed, "draw", epoch, step)
    of_shard = generator_for(config.seed, "draw", epoch, step, number)
    if config.objective.per_batch and number == 0:
        of_shard = of_batch  # so that a batch of one shard draws as `objective.draw` does, from one generator
    return config.objective.draw_part(count, shape, shared=of_batch, own=of_shard)


def agreeing(draw: Draw, largest: Draw) -> Draw:
    """Return a shard's draw with the lambda and box of the largest shard, where all images of the batch share these.

    A smaller shard draws fewer partners, so whatever its stream gives after them differs.
    """
    for name in ("lam", "box"):
        mine, theirs = getattr(draw, name), getattr(largest, name)
        if mine is not None and mine.shape == theirs.shape:
            draw = dataclasses.replace(draw, **{name: theirs})
    return draw
