"""A labelled set of images in memory, and how it is checked and identified."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class ImageSet:
    """Images with labels.

    images: (N, C, H, W) uint8; derived sets may be float32 in [0, 1]. labels: (N,) int64.
    classes: the class names, in label order. name: what `load` was asked for. info: facts about a derived set.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    name: str
    info: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.ndim != 4 or not (images.dtype == torch.uint8 or images.is_floating_point()):
            raise ValueError(
                f"{self.name}: images must be uint8 or float (N, C, H, W), got {images.dtype} {tuple(images.shape)}"
            )
        if len(images) == 0:
            raise ValueError(f"{self.name}: the dataset is empty")
        if labels.dtype != torch.int64 or labels.shape != (len(images),):
            raise ValueError(
                f"{self.name}: labels must be int64 of shape ({len(images)},), got {labels.dtype} {tuple(labels.shape)}"
            )
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(self.classes):
            raise ValueError(
                f"{self.name}: labels must lie in [0, {len(self.classes)}), got values from {low} to {high}"
            )
        if images.is_floating_point() and not torch.isfinite(images).all():
            raise ValueError(f"{self.name}: images must be finite, got NaN or infinite pixels")

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the pixel array in (N, H, W, C) order: the same whatever archive the images came from."""
        digest = hashlib.sha256()
        for part in self.images.split(1000):
            digest.update(part.permute(0, 2, 3, 1).contiguous().numpy().data)
        return digest.hexdigest()

    def select(self, index: Tensor, *, name: str = "", info: dict[str, str] | None = None) -> ImageSet:
        """The images at `index`, in that order."""
        return ImageSet(
            self.images[index], self.labels[index], self.classes, name or self.name, {**self.info, **(info or {})}
        )
