"""ImageSet: what it refuses, and how it identifies its pixels."""

import hashlib
import math

import numpy as np
import pytest
import torch

from regmixup.data.images import ImageSet


def pixels(count=5, channels=3):
    return torch.randint(256, (count, channels, 4, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def image_set(images=None, labels=None, classes=("a", "b", "c")):
    images = pixels() if images is None else images
    labels = torch.arange(len(images)) % 3 if labels is None else labels
    return ImageSet(images, labels, classes, "toy/test")


def test_it_holds_what_it_was_given():
    assert len(image_set()) == 5
    assert torch.equal(image_set().images, pixels())
    assert image_set().info == {}


@pytest.mark.parametrize(
    "images", [pixels().float() / 255, pixels().double() / 255, pixels()], ids=lambda x: str(x.dtype)
)
def test_uint8_and_floating_point_images_are_accepted(images):
    assert image_set(images).images.dtype == images.dtype


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(0, 3, 4, 6, dtype=torch.uint8), "the dataset is empty"),
        (
            torch.zeros(5, 4, 6, dtype=torch.uint8),
            r"images must be uint8 or float \(N, C, H, W\), got torch.uint8 \(5, 4, 6\)",
        ),
        (
            torch.zeros(5, 3, 4, 6, dtype=torch.int64),
            r"images must be uint8 or float .* got torch.int64 \(5, 3, 4, 6\)",
        ),
        (torch.full((5, 3, 4, 6), math.nan), "images must be finite"),
        (torch.full((5, 3, 4, 6), math.inf), "images must be finite"),
    ],
)
def test_images_it_cannot_use_are_refused(images, message):
    with pytest.raises(ValueError, match=f"toy/test: {message}"):
        image_set(images)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), r"labels must be int64 of shape \(5,\), got torch.int64 \(4,\)"),
        (torch.zeros(5, 1, dtype=torch.int64), r"labels must be int64 of shape \(5,\), got torch.int64 \(5, 1\)"),
        (torch.zeros(5, dtype=torch.int32), r"labels must be int64 of shape \(5,\), got torch.int32 \(5,\)"),
        (torch.zeros(5), r"labels must be int64 of shape \(5,\), got torch.float32 \(5,\)"),
        (torch.tensor([0, 1, 2, 3, 0]), r"labels must lie in \[0, 3\), got values from 0 to 3"),
        (torch.tensor([0, 1, 2, -1, 0]), r"labels must lie in \[0, 3\), got values from -1 to 2"),
    ],
)
def test_labels_it_cannot_use_are_refused(labels, message):
    with pytest.raises(ValueError, match=f"toy/test: {message}"):
        image_set(labels=labels)


def test_the_fingerprint_is_the_hash_of_the_pixels_with_channels_last():
    """CIFAR's archives store (N, 3, H, W) rows and ImageNet-C's (N, H, W, 3): the same pixels have one name."""
    array = np.ascontiguousarray(pixels().numpy().transpose(0, 2, 3, 1))
    assert image_set().fingerprint == hashlib.sha256(array.tobytes()).hexdigest()
    from_channels_last = torch.from_numpy(array).permute(0, 3, 1, 2)
    assert image_set(from_channels_last).fingerprint == image_set().fingerprint


def test_one_changed_pixel_changes_the_fingerprint():
    changed = pixels()
    changed[4, 2, 3, 5] ^= 1
    assert image_set(changed).fingerprint != image_set().fingerprint


def test_the_order_of_images_changes_the_fingerprint():
    assert image_set(pixels().flip(0)).fingerprint != image_set().fingerprint
