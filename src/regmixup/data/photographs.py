"""`photographs/test`: 8x8 grey patches of scikit-learn's two sample photographs, a far out-of-distribution set.

Both photographs (427x640) are turned grey, averaged over 4x4 blocks and cut into patches on a regular grid, 520 in
all. The averaging keeps patches from being nearly constant, so that a patch has edges, as digits do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from regmixup.data.images import ImageSet
from regmixup.names import check_name

CLASSES = ("china", "flower")
PATCH, BLOCK = 8, 4


def load_photographs(name: str, root: Path | None = None) -> ImageSet:
    """The patches; the label says which photograph one comes from."""
    from sklearn.datasets import load_sample_image

    check_name("split of photographs", name.partition("/")[2], ("test",))
    patches = [_patches(load_sample_image(f"{photograph}.jpg")) for photograph in CLASSES]
    labels = torch.cat([torch.full((len(p),), i) for i, p in enumerate(patches)])
    return ImageSet(torch.cat(patches), labels, CLASSES, name)


def _patches(photograph: np.ndarray) -> torch.Tensor:
    """(H, W, 3) uint8 -> (N, 1, 8, 8) uint8."""
    grey = torch.from_numpy(photograph.astype(np.float64)) @ torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    side = PATCH * BLOCK
    rows, columns = grey.shape[0] // side, grey.shape[1] // side
    grid = grey[: rows * side, : columns * side].reshape(rows, PATCH, BLOCK, columns, PATCH, BLOCK).mean(dim=(2, 5))
    return grid.permute(0, 2, 1, 3).reshape(-1, 1, PATCH, PATCH).round().to(torch.uint8)
