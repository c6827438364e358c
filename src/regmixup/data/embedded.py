"""scikit-learn's handwritten digits: 1,797 real images of 8x8 pixels that ship with a dependency.

`digits/train`, `digits/val`, `digits/test`: a fixed stratified 25/25/50 split. Digits are easy; a small
    train set leaves errors to measure, and a large test set measures them better.
`digits-c/<corruption>/<severity>`: the test images, corrupted.
`digits-mirrored/test`: a near out-of-distribution set. Test images of 3, 4, 6, 7 and 9, mirrored left to right.
    They share writers, strokes, ink and pixel histogram with the real digits, and only the shape is wrong: mirrored,
    these five are no digit at all. 0, 1 and 8 stay themselves when mirrored, and a mirrored 2 resembles a 5 and a
    mirrored 5 a 2, so those five are left out.

`photographs/test`: 8x8 grey patches of scikit-learn's two sample photographs, a far out-of-distribution set.

Both photographs (427x640) are turned grey, averaged over 4x4 blocks and cut into patches on a regular grid, 520 in
all. The averaging keeps patches from being nearly constant, so that a patch has edges, as digits do.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from regmixup.data import DIGIT_CORRUPTIONS
from regmixup.data.corruptions import corrupt
from regmixup.data.images import ImageSet
from regmixup.data.seeds import generator_for
from regmixup.data.splits import stratified
from regmixup.names import check_name

CLASSES = tuple("0123456789")
FRACTIONS = {"train": 0.25, "val": 0.25, "test": 0.5}

MIRRORED = (3, 4, 6, 7, 9)


@lru_cache(maxsize=1)
def _all() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(bunch.target).long()


def load_digits(name: str, root: Path | None = None) -> ImageSet:
    """`digits/<split>`."""
    _, _, split = name.partition("/")
    names = list(FRACTIONS)
    check_name("split of digits", split, names)
    images, labels = _all()
    index = stratified(labels, tuple(FRACTIONS.values()))[names.index(split)]
    return ImageSet(images[index], labels[index], CLASSES, name)


def load_corrupted_digits(name: str, root: Path | None = None) -> ImageSet:
    """`digits-c/<corruption>/<severity>`."""
    _, _, rest = name.partition("/")
    corruption, _, severity = rest.partition("/")
    check_name("corruption of digits-c", corruption, DIGIT_CORRUPTIONS)
    check_name("severity of digits-c", severity, "12345")
    test = load_digits("digits/test")
    images = corrupt(test.images, corruption, severity=int(severity), generator=generator_for(0, name))
    return ImageSet(images, test.labels, CLASSES, name)


def load_mirrored_digits(name: str, root: Path | None = None) -> ImageSet:
    """`digits-mirrored/test`; the labels are those of the unmirrored digits."""
    test = load_digits("digits/" + name.partition("/")[2])
    keep = torch.isin(test.labels, torch.tensor(MIRRORED))
    return ImageSet(test.images[keep].flip(-1), test.labels[keep], CLASSES, name)


PHOTOGRAPHS = ("china", "flower")
PATCH, BLOCK = 8, 4


def load_photographs(name: str, root: Path | None = None) -> ImageSet:
    """The patches; the label says which photograph one comes from."""
    from sklearn.datasets import load_sample_image

    check_name("split of photographs", name.partition("/")[2], ("test",))
    patches = [_patches(load_sample_image(f"{photograph}.jpg")) for photograph in PHOTOGRAPHS]
    labels = torch.cat([torch.full((len(p),), i) for i, p in enumerate(patches)])
    return ImageSet(torch.cat(patches), labels, PHOTOGRAPHS, name)


def _patches(photograph: np.ndarray) -> torch.Tensor:
    """(H, W, 3) uint8 -> (N, 1, 8, 8) uint8."""
    grey = torch.from_numpy(photograph.astype(np.float64)) @ torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    side = PATCH * BLOCK
    rows, columns = grey.shape[0] // side, grey.shape[1] // side
    grid = grey[: rows * side, : columns * side].reshape(rows, PATCH, BLOCK, columns, PATCH, BLOCK).mean(dim=(2, 5))
    return grid.permute(0, 2, 1, 3).reshape(-1, 1, PATCH, PATCH).round().to(torch.uint8)
