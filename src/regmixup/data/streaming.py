"""The streaming loader: images that do not fit in memory, or are augmented one by one, come from worker processes."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import parent_process
from threading import Thread
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from regmixup.data.decode import open_rgb
from regmixup.data.loader import Loader, epoch_batches
from regmixup.data.splits import generator_for, seed_for
from regmixup.types import Batch

Transform = Callable[[Image.Image], Image.Image | Tensor]
"""A function from an RGB or grey image to one of the network's size, as a PIL image or a uint8 tensor (C, H, W)."""


class _Samples(Dataset[tuple[Tensor, int]]):
    """One decoded, transformed image for (epoch, index); its randomness depends on seed, epoch and index alone."""

    def __init__(self, images: Sequence[str] | Tensor, labels: Tensor, transform: Transform, seed: int) -> None:
        self.images, self.labels, self.transform, self.seed = images, labels, transform, seed

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int]:
        from torchvision.transforms.functional import pil_to_tensor, to_pil_image  # takes two seconds

        index, source = key[1], self.images[key[1]]
        with torch.random.fork_rng(devices=[]):  # torchvision draws from the CPU's global generator
            torch.default_generator.manual_seed(seed_for(self.seed, "transform", *key))
            image = self.transform(to_pil_image(source) if isinstance(source, Tensor) else open_rgb(source))
        pixels = image if isinstance(image, Tensor) else pil_to_tensor(image)  # Cutout returns a tensor
        return pixels, int(self.labels[index])


class StreamingLoader(Loader):
    """Batches of images, decoded and augmented by `workers` processes; how many there are changes no batch.

    Towards the end of an epoch they decode the first batches of the next already, so that it does not wait for them.

    images: the paths of files, or images in memory, (N, 1 or 3, H, W) uint8. order: `batch_size`, `seed` and `device`.
    transform: may draw from torch's global generator. shape: (C, H, W) of what it returns.
    epochs: how many there will be. Nothing is decoded beyond.
    """

    def __init__(
        self,
        images: Sequence[str] | Tensor,
        labels: Tensor,
        *,
        transform: Transform,
        shape: tuple[int, int, int],
        workers: int,
        epochs: int,
        **order: Any,
    ) -> None:
        super().__init__(len(labels), **order)
        self.samples, self.workers, self.epochs = _Samples(images, labels, transform, self.seed), workers, epochs
        self._empty = torch.empty(0, *shape, dtype=torch.uint8), torch.empty(0, dtype=torch.int64)
        self._ahead: tuple[int, Iterator[list[Tensor]]] | None = None

    def load(self, picked: Batch) -> Batch:
        """Return the batch itself: the workers have made it."""
        return picked

    def picks(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, starting at batch `start`; x is uint8 on the loader's device."""
        pin = self.device.type == "cuda"
        next_epoch, batches = self._ahead or (-1, iter([]))
        self._ahead = None  # of two epochs at once, each has its own
        if next_epoch != epoch or start:
            batches = self._decoded(epoch, start)  # nothing refers to those before, so their processes end
        for number in range(start, len(self)):
            batch_images = min(self.batch_size, self.num_images - number * self.batch_size)
            x, y = next(batches) if self.shard_size(batch_images) else self._empty
            yield Batch(x.to(self.device, non_blocking=pin), y.to(self.device, non_blocking=pin))
        if epoch + 1 < self.epochs:
            self._ahead = epoch + 1, batches

    def _decoded(self, epoch: int, start: int) -> Iterator[list[Tensor]]:
        """Yield the batches of an epoch from batch `start` on, and of all later ones, decoded by new processes."""
        # Nothing here refers to the loader: in a circle of references processes would end late.
        batches_of = partial(epoch_batches, self.num_images, self.batch_size, self.seed)
        shard = slice(self.shard_number, None, self.num_shards)
        epochs = range(epoch, max(self.epochs, epoch + 1))

        def keys() -> Iterator[list[tuple[int, int]]]:
            for number in epochs:
                for batch in batches_of(number)[start if number == epoch else 0 :]:
                    if len(batch[shard]):
                        yield [(number, index) for index in batch[shard].tolist()]

        return iter(
            DataLoader(
                self.samples,
                batch_sampler=keys(),
                num_workers=self.workers,
                pin_memory=self.device.type == "cuda",
                prefetch_factor=4 if self.workers else None,
                generator=generator_for(self.seed, "workers", 0),
                worker_init_fn=_prepare_worker,
            )
        )

    def close(self) -> None:
        """End the processes that decode the next epoch. Another epoch may still follow."""
        self._ahead = None


def _prepare_worker(worker: int) -> None:
    """Ignore Ctrl-C, and SIGTERM unless it comes from the main process, which ends its workers in that way.

    Both reach every process of a job, and the main process needs its workers to save its work. What a forked worker
    has inherited is never collected: it cannot free the CUDA graphs of the main process, and warns when it tries.
    """
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main = parent_process()
    if main is None or not hasattr(signal, "sigtimedwait"):  # macOS, where a signal's sender cannot be told
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    Thread(target=_exit_on_sigterm_from, args=(main.pid,), daemon=True).start()


def _exit_on_sigterm_from(pid: int | None) -> None:
    """Wait for SIGTERM from the main process, or for its death, and exit; a worker holds its lock of the run folder."""
    while os.getppid() == pid:
        sent = signal.sigtimedwait({signal.SIGTERM}, 0.2)
        if sent is not None and sent.si_pid == pid:
            break
    os._exit(0)
