"""The streaming loader: images decoded from files by worker processes, for sets that do not fit in memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from multiprocessing import parent_process
from threading import Thread

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import pil_to_tensor

from regmixup.config import check_count
from regmixup.data.decode import EvalTransform, TrainTransform, open_rgb
from regmixup.data.loader import epoch_batches
from regmixup.data.splits import generator_for, seed_for
from regmixup.types import Batch


class _Samples(Dataset[tuple[Tensor, int]]):
    """One decoded, transformed image for (epoch, index); its randomness depends on seed, epoch and index alone."""

    def __init__(
        self, paths: Sequence[str], labels: Tensor, transform: TrainTransform | EvalTransform, seed: int
    ) -> None:
        self.paths, self.labels, self.seed = list(paths), labels, seed
        self.transform, self.size = transform.build(), transform.size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int]:
        epoch, index = key
        # torchvision draws from the global generator; torch.random.fork_rng would do this too, 70 times slower.
        state = torch.default_generator.get_state()
        try:
            torch.default_generator.manual_seed(seed_for(self.seed, "transform", epoch, index))
            image = self.transform(open_rgb(self.paths[index]))
            return pil_to_tensor(image), int(self.labels[index])
        finally:
            torch.default_generator.set_state(state)


class StreamingLoader:
    """Shuffled batches of files, decoded and augmented by `workers` processes; the last, partial batch is kept.

    Its contract is that of `ResidentLoader`: an epoch depends on (seed, epoch) alone, whatever the number of workers,
    and can start at any batch (`start`). Ranks share every global batch without overlap.
    """

    def __init__(
        self,
        paths: Sequence[str],
        labels: Tensor,
        *,
        transform: TrainTransform | EvalTransform,
        batch_size: int,
        seed: int,
        device: torch.device,
        workers: int = 4,
        shuffle: bool = True,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        check_count("batch_size", batch_size)
        check_count("workers", workers, least=0)
        if len(paths) != len(labels) or not paths:
            raise ValueError(f"paths and labels must be equally many, at least one, got {len(paths)} and {len(labels)}")
        self.samples = _Samples(paths, labels, transform, seed)
        self.batch_size, self.seed, self.device, self.workers = batch_size, seed, device, workers
        self.shuffle, self.rank, self.world = shuffle, rank, world

    @property
    def num_images(self) -> int:
        """Number of images per epoch, over all ranks."""
        return len(self.samples)

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return -(-self.num_images // self.batch_size)

    def load(self, picked: Batch) -> Batch:
        """Return the batch itself: the workers have made it."""
        return picked

    def picks(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches: see `epoch`."""
        return self.epoch(epoch, start=start)

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, starting at batch `start`; x is uint8 on the loader's device."""
        batches = epoch_batches(
            self.num_images, self.batch_size, self.seed, epoch, shuffle=self.shuffle, rank=self.rank, world=self.world
        )[start:]
        pin = self.device.type == "cuda"
        empty = [batch for batch in batches if not len(batch)]  # only a last batch of fewer images than ranks
        batches = batches[: len(batches) - len(empty)]
        loader = DataLoader(
            self.samples,
            batch_sampler=[[(epoch, index) for index in batch.tolist()] for batch in batches],
            num_workers=self.workers,
            pin_memory=pin,
            prefetch_factor=4 if self.workers else None,
            generator=generator_for(self.seed, "workers", epoch),
            worker_init_fn=_ignore_signals_from_others,
        )
        for x, y in loader:
            yield Batch(x.to(self.device, non_blocking=pin), y.to(self.device, non_blocking=pin))
        for _ in empty:
            side = self.samples.size
            x = torch.empty(0, 3, side, side, dtype=torch.uint8, device=self.device)
            yield Batch(x, torch.empty(0, dtype=torch.int64, device=self.device))


def _ignore_signals_from_others(worker: int) -> None:
    """Ignore Ctrl-C, and SIGTERM unless it comes from the main process, which ends its workers in that way.

    Both reach every process of a job, and the main process needs its workers to save its work.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main = parent_process()
    if main is None or not hasattr(signal, "sigwaitinfo"):  # macOS, where a signal's sender cannot be told
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    Thread(target=_exit_on_sigterm_from, args=(main.pid,), daemon=True).start()


def _exit_on_sigterm_from(pid: int | None) -> None:
    """Wait for SIGTERM from a process, and exit."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != pid:
        pass
    os._exit(0)
