"""The streaming loader: images decoded from files by worker processes, for sets that do not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from regmixup.config import check_count
from regmixup.data.decode import open_rgb
from regmixup.data.loader import epoch_batches
from regmixup.data.seeds import generator_for, seed_for
from regmixup.types import Batch


@dataclass(frozen=True, kw_only=True)
class TrainTransform:
    """The paper's ImageNet augmentation: random resized crop, flip, colour jitter; Pillow image in, uint8 out.

    size: side of the square crop. scale and ratio: area and aspect of the crop relative to the image.
    jitter: strength of brightness, contrast and saturation changes; 0 for none.
    """

    size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: float = 0.4

    def build(self) -> Any:
        """The torchvision transform."""
        from torchvision.transforms import v2

        steps: list[Any] = [
            v2.RandomResizedCrop(self.size, scale=self.scale, ratio=self.ratio, antialias=True),
            v2.RandomHorizontalFlip(self.flip),
        ]
        if self.jitter:
            steps.append(v2.ColorJitter(self.jitter, self.jitter, self.jitter))
        return v2.Compose([*steps, v2.PILToTensor()])


@dataclass(frozen=True, kw_only=True)
class EvalTransform:
    """Resize the short side to `resize` with antialiasing, then cut the central `size` square."""

    size: int = 224
    resize: int = 256

    def build(self) -> Any:
        """The torchvision transform."""
        from torchvision.transforms import v2

        return v2.Compose([v2.Resize(self.resize, antialias=True), v2.CenterCrop(self.size), v2.PILToTensor()])


class _Samples(Dataset[tuple[Tensor, int]]):
    """One decoded, transformed image for (epoch, index); its randomness depends on seed, epoch and index alone."""

    def __init__(
        self, paths: Sequence[str], labels: Tensor, transform: TrainTransform | EvalTransform, seed: int
    ) -> None:
        self.paths, self.labels, self.seed = list(paths), labels, seed
        self.transform = transform.build()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int]:
        epoch, index = key
        # torchvision draws from the global generator; torch.random.fork_rng would do this too, 70 times slower.
        state = torch.default_generator.get_state()
        try:
            torch.default_generator.manual_seed(seed_for(self.seed, "transform", epoch, index))
            return self.transform(open_rgb(self.paths[index])), int(self.labels[index])
        finally:
            torch.default_generator.set_state(state)


class StreamingLoader:
    """Shuffled batches of files, decoded and augmented by `workers` processes; the last, partial batch is kept.

    The same contract as `ResidentLoader`: an epoch depends on (seed, epoch) alone, whatever the number of workers, and
    can be entered at any batch (`start`). Ranks share every global batch without overlap.
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
        """Images per epoch, over all ranks."""
        return len(self.samples)

    def __len__(self) -> int:
        """Batches per epoch."""
        return -(-self.num_images // self.batch_size)

    def epoch(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on; x is uint8 on the loader's device."""
        batches = epoch_batches(
            self.num_images, self.batch_size, self.seed, epoch, shuffle=self.shuffle, rank=self.rank, world=self.world
        )[start:]
        pin = self.device.type == "cuda"
        loader = DataLoader(
            self.samples,
            batch_sampler=[[(epoch, int(index)) for index in batch] for batch in batches],
            num_workers=self.workers,
            pin_memory=pin,
            prefetch_factor=4 if self.workers else None,
            generator=generator_for(self.seed, "workers", epoch),
        )
        for x, y in loader:
            yield Batch(x.to(self.device, non_blocking=pin), y.to(self.device, non_blocking=pin))
