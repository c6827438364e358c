"""Datasets that ship with scikit-learn, so that everything can be tried without a download: 8x8 pixels, grey.

`digits/train`, `digits/val`, `digits/test`: 1,797 handwritten digits in a fixed stratified 25/25/50 split. Digits are
    easy; a small train set leaves errors to measure, and a large test set measures them better.
`digits-c/<corruption>/<severity>`: the test images, corrupted.
`digits-mirrored/test`: a near out-of-distribution set. Test images of 3, 4, 6, 7 and 9, mirrored left to right.
    They share writers, strokes, ink and pixel histogram with the real digits, and only the shape is wrong: mirrored,
    these five are no digit at all. 0, 1 and 8 stay themselves when mirrored, and a mirrored 2 resembles a 5 and a
    mirrored 5 a 2, so those five are left out.
`photographs/test`: a far out-of-distribution set, patches of scikit-learn's two sample photographs. Both photographs
    (427x640) are turned grey, averaged over 4x4 blocks and cut into patches on a regular grid, 520 in all. The
    averaging keeps patches from being nearly constant, so that a patch has edges, as digits do.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from regmixup.data.catalogue import Dataset
from regmixup.data.files import file_of
from regmixup.data.images import ImageSet, luma
from regmixup.data.splits import generator_for, stratified

DIGITS = tuple("0123456789")
FRACTIONS = {"train": 0.25, "val": 0.25, "test": 0.5}
MIRRORED = (3, 4, 6, 7, 9)
PHOTOGRAPHS = ("china", "flower")
PATCH, BLOCK = 8, 4


@lru_cache(maxsize=1)
def _all_digits() -> tuple[torch.Tensor, torch.Tensor]:
    table = np.loadtxt(file_of("sklearn", "datasets/data/digits.csv.gz"), delimiter=",")
    images = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8)
    return torch.from_numpy(images).reshape(-1, 1, 8, 8), torch.from_numpy(table[:, -1]).long()


def _digits(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = _all_digits()
    index = stratified(labels, tuple(FRACTIONS.values()))[list(FRACTIONS).index(split)]
    return images[index], labels[index]


def load_digits(dataset: Dataset, root: Path) -> ImageSet:
    """Return `digits/<split>`."""
    return ImageSet(*_digits(dataset.split), DIGITS, dataset.name)


def load_corrupted_digits(dataset: Dataset, root: Path) -> ImageSet:
    """Return `digits-c/<corruption>/<severity>`."""
    from regmixup.data.corruptions import corrupt

    images, labels = _digits("test")
    generator = generator_for(0, dataset.name)
    images = corrupt(images, dataset.corruption, severity=dataset.severity, generator=generator)
    return ImageSet(images, labels, DIGITS, dataset.name)


def load_mirrored_digits(dataset: Dataset, root: Path) -> ImageSet:
    """Return `digits-mirrored/test`; the labels are those of the unmirrored digits."""
    images, labels = _digits("test")
    keep = torch.isin(labels, torch.tensor(MIRRORED))
    return ImageSet(images[keep].flip(-1), labels[keep], DIGITS, dataset.name)


def load_photographs(dataset: Dataset, root: Path) -> ImageSet:
    """Return `photographs/test`; the label says which photograph a patch comes from."""
    files = [file_of("sklearn", f"datasets/images/{photograph}.jpg") for photograph in PHOTOGRAPHS]
    patches = [_patches(np.asarray(Image.open(file))) for file in files]
    labels = torch.cat([torch.full((len(p),), i) for i, p in enumerate(patches)])
    return ImageSet(torch.cat(patches), labels, PHOTOGRAPHS, dataset.name)


def _patches(photograph: np.ndarray) -> torch.Tensor:
    """Cut (H, W, 3) uint8 into (N, 1, 8, 8) uint8."""
    grey = luma(torch.from_numpy(photograph.astype(np.float64)).permute(2, 0, 1)).squeeze(0)
    side = PATCH * BLOCK
    rows, columns = grey.shape[0] // side, grey.shape[1] // side
    grid = grey[: rows * side, : columns * side].reshape(rows, PATCH, BLOCK, columns, PATCH, BLOCK).mean(dim=(2, 5))
    return grid.permute(0, 2, 1, 3).reshape(-1, 1, PATCH, PATCH).round().to(torch.uint8)
