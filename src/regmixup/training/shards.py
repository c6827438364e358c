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
    batch_images: those of the whole batch, over all ranks. seed: for dropout; None leaves the generator as it is.
    """

    picked: Any
    draw: Draw
    count: int
    batch_images: int
    seed: int | None


def draw_shard(
    config: TrainConfig, number: int, count: int, *, largest: int, shape: tuple[int, int, int], epoch: int, step: int
) -> Draw:
    """Draw the objective's randomness for the `count` images of a shard; for one image where it is empty.

    number: the shard's. largest: the number of images in the largest shard of the batch. Where all images of a batch
    share lambda and box, all shards have those of the largest: a smaller one draws fewer partners, so whatever its
    stream gives after them differs.
    """

    def drawn(images: int) -> Draw:
        of_batch = generator_for(config.seed, "draw", epoch, step)
        of_shard = generator_for(config.seed, "draw", epoch, step, number)
        if config.objective.per_batch and number == 0:
            of_shard = of_batch  # so that a batch of one shard draws as `objective.draw` does, from one generator
        return config.objective.draw_part(images, shape, shared=of_batch, own=of_shard)

    draw = drawn(max(count, 1))
    if config.objective.per_batch and count < largest:
        of_largest = drawn(largest)
        for name in ("lam", "box"):
            shared, own = getattr(of_largest, name), getattr(draw, name)
            if own is not None and own.shape == shared.shape:
                draw = dataclasses.replace(draw, **{name: shared})
    return draw
