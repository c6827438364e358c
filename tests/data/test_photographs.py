"""Patches of photographs as a far out-of-distribution set."""

import numpy as np
import pytest
import sklearn.datasets
import torch

from regmixup import data

# The photographs are JPEG files: a decoder that rounds otherwise would change this.
FINGERPRINT = "3e743715fbc8240b851bc2947d2c0ec5ceac777432624d2e94569637e2a63fb4"


@pytest.fixture(scope="module")
def photographs():
    return data.load("photographs/test")


def test_the_pixels_never_change(photographs):
    assert photographs.fingerprint == FINGERPRINT


def test_there_are_260_patches_of_each_photograph(photographs):
    assert photographs.images.shape == (520, 1, 8, 8)
    assert photographs.images.dtype == torch.uint8
    assert photographs.labels.tolist() == [0] * 260 + [1] * 260
    assert photographs.classes == ("china", "flower")


@pytest.mark.parametrize(("name", "start"), [("china.jpg", 0), ("flower.jpg", 260)])
@pytest.mark.parametrize("patch", [0, 1, 19, 20, 137, 259])
def test_a_patch_is_the_block_average_of_the_grey_photograph(photographs, name, start, patch):
    """Patch p lies in row p // 20 and column p % 20 of a grid of 32x32 pixels; each value averages a 4x4 block."""
    photograph = sklearn.datasets.load_sample_image(name).astype(np.float64)
    grey = 0.299 * photograph[..., 0] + 0.587 * photograph[..., 1] + 0.114 * photograph[..., 2]
    top, left = 32 * (patch // 20), 32 * (patch % 20)
    found = photographs.images[start + patch, 0].numpy()
    for i in range(8):
        for j in range(8):
            block = grey[top + 4 * i : top + 4 * i + 4, left + 4 * j : left + 4 * j + 4]
            assert abs(found[i, j] - block.mean()) <= 0.5 + 1e-9


def test_most_patches_are_not_flat(photographs):
    spread = photographs.images.double().std(dim=(1, 2, 3))
    assert (spread > 8).double().mean() > 0.5


def test_no_patch_is_a_digit(photographs):
    digits = {image.numpy().tobytes() for image in data.load("digits/test").images}
    assert not digits & {image.numpy().tobytes() for image in photographs.images}
