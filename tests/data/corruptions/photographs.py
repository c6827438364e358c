"""Small photographs for the tests: scikit-learn's two samples, whole or in pieces, as uint8 (N, 3, H, W)."""

from functools import lru_cache

import numpy as np
import torch
from PIL import Image


@lru_cache(maxsize=1)
def _samples():
    from sklearn.datasets import load_sample_images

    return [Image.fromarray(image) for image in load_sample_images().images]


@lru_cache(maxsize=8)
def whole(side):
    """Both photographs, shrunk to side x side."""
    shrunk = [np.asarray(photo.resize((side, side), Image.Resampling.LANCZOS)) for photo in _samples()]
    return torch.from_numpy(np.stack(shrunk)).permute(0, 3, 1, 2).contiguous()


@lru_cache(maxsize=8)
def pieces(count, side=32):
    """`count` random side x side pieces of the photographs at a third of their size."""
    random = np.random.default_rng(0)
    shrunk = [np.asarray(photo.resize((photo.width // 3, photo.height // 3))) for photo in _samples()]
    found = []
    for index in range(count):
        photo = shrunk[index % 2]
        y, x = (random.integers(0, size - side + 1) for size in photo.shape[:2])
        found.append(photo[y : y + side, x : x + side])
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2).contiguous()


def arrays(images):
    """(N, 3, H, W) tensor to (N, H, W, 3) array."""
    return images.permute(0, 2, 3, 1).numpy()
