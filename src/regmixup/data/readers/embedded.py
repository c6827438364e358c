"""Datasets that ship with this package, so that everything can be tried without a download: 8x8 pixels, grey.

`digits/train`, `digits/val`, `digits/test`: 1,797 handwritten digits in a fixed stratified 25/25/50 split. Digits are
    easy; a small train set leaves errors to measure, and a large test set measures them better.
`digits-c/<corruption>/<severity>`: the test images, corrupted.
`digits-mirrored/test`: a near out-of-distribution set. Test images of 3, 4, 6, 7 and 9, mirrored left to right.
    They share writers, strokes, ink and pixel histogram with the real digits, and only the shape is wrong: mirrored,
    these five are no digit at all. 0, 1 and 8 stay themselves when mirrored, and a mirrored 2 resembles a 5 and a
    mirrored 5 a 2, so those five are left out.
`photographs/test`: a far out-of-distribution set, patches of scikit-learn's two sample photographs. Both photographs
    (427x640) were turned grey, averaged over 4x4 blocks and cut into patches on a regular grid, 520 in all. The
    averaging keeps patches from being nearly constant, so that a patch has edges, as digits do.

`embedded.npz` holds `digits`, uint8 (1797, 8, 8) with values 0 to 16, their labels, and `patches`, uint8 (520, 8, 8).

The digits are scikit-learn's copy of the test part of the Optical Recognition of Handwritten Digits dataset
    (E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning Repository), under CC BY 4.0.
The photographs are china.jpg, by the Flickr user danielbuechele (photo 6061409035), and flower.jpg, by the Flickr user
    vultilion (photo 6056698931), as scikit-learn ships them; both under CC BY 2.0. The patches are changed as above.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from regmixup.data.corruptions import corrupt
from regmixup.data.images import ImageSet
from regmixup.data.records import Dataset
from regmixup.data.splits import generator_for, stratified

DIGITS = tuple("0123456789")
FRACTIONS = {"train": 0.25, "val": 0.25, "test": 0.5}
MIRRORED = (3, 4, 6, 7, 9)
PHOTOGRAPHS = ("china", "flower")


@lru_cache(maxsize=1)
def _arrays() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name("embedded.npz"), allow_pickle=False) as arrays:
        return dict(arrays)


def load_embedded(dataset: Dataset, root: Path) -> ImageSet:
    """Return `digits/<split>`, `digits-c/<corruption>/<severity>`, `digits-mirrored/test` or `photographs/test`.

    Mirrored digits keep their labels; the label of a patch says which photograph it comes from.
    """
    if dataset.family == "photographs":
        patches = torch.tensor(_arrays()["patches"]).unsqueeze(1)
        labels = torch.arange(len(PHOTOGRAPHS)).repeat_interleave(len(patches) // len(PHOTOGRAPHS))
        return ImageSet(patches, labels, PHOTOGRAPHS, dataset.name)
    pixels = np.rint(_arrays()["digits"] * (255 / 16)).astype(np.uint8)
    labels = torch.from_numpy(_arrays()["digit_labels"]).long()
    split = dataset.split if dataset.family == "digits" else "test"
    parts = dict(zip(FRACTIONS, stratified(labels, tuple(FRACTIONS.values())), strict=True))
    images, labels = torch.from_numpy(pixels)[parts[split]].unsqueeze(1), labels[parts[split]]
    if dataset.family == "digits-c":
        generator = generator_for(0, dataset.name)
        images = corrupt(images, dataset.corruption, severity=dataset.severity, generator=generator)
    if dataset.family == "digits-mirrored":
        keep = torch.isin(labels, torch.tensor(MIRRORED))
        images, labels = images[keep].flip(-1), labels[keep]
    return ImageSet(images, labels, DIGITS, dataset.name)
