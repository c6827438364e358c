"""Tiny-ImageNet-200, at 64 and at 32 pixels."""

import numpy as np
import pytest
import torch
from PIL import Image

from regmixup import data
from regmixup.data.readers.tiny_imagenet import halve
from tests.data.official import random_images, smooth_image, write_image, write_tiny_imagenet


def pixels_of(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_val_follows_its_list(tmp_path):
    write_tiny_imagenet(tmp_path)
    dataset = data.load("tiny-imagenet-64/val", root=tmp_path)
    assert dataset.classes == ("n01000000", "n03000000")
    assert dataset.labels.tolist() == [1, 1, 0, 0]
    images = tmp_path / "tiny-imagenet-200" / "val" / "images"
    for number, file in enumerate(["val_0.JPEG", "val_2.JPEG", "val_1.JPEG", "val_3.JPEG"]):
        np.testing.assert_array_equal(dataset.images[number].permute(1, 2, 0).numpy(), pixels_of(images / file))


def test_half_the_size(tmp_path):
    write_tiny_imagenet(tmp_path)
    large = data.load("tiny-imagenet-64/val", root=tmp_path)
    small = data.load("tiny-imagenet/val", root=tmp_path)
    assert small.images.shape == (4, 3, 32, 32)
    assert torch.equal(small.images, halve(large.images))
    assert torch.equal(small.labels, large.labels)


def test_halving_is_the_triangle_filter_rounded_half_up():
    """Weights 1, 3, 3, 1 over 8 around each output pixel, renormalised at the edges, in exact integers."""
    images = random_images(8, seed=1, side=64).transpose(0, 3, 1, 2).astype(np.int64)
    taps = np.zeros((32, 64), np.int64)
    for row in range(32):
        for offset, weight in ((-1, 1), (0, 3), (1, 3), (2, 1)):
            if 0 <= 2 * row + offset < 64:
                taps[row, 2 * row + offset] = weight
    total = taps.sum(axis=1)
    sums = np.einsum("ij,ncjk,lk->ncil", taps, images, taps)
    weights = total[:, None] * total[None, :]
    expected = (2 * sums + weights) // (2 * weights)
    np.testing.assert_array_equal(halve(torch.from_numpy(images.astype(np.uint8))).numpy(), expected)


def test_an_image_of_another_size_is_refused(tmp_path):
    write_tiny_imagenet(tmp_path)
    path = tmp_path / "tiny-imagenet-200" / "val" / "images" / "val_1.JPEG"
    write_image(path, smooth_image(1, 64, 65))
    with pytest.raises(ValueError, match=r"val/images as images of 64x64 pixels: "):
        data.load("tiny-imagenet/val", root=tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("val_0.JPEG n01000000\n", "separated by a tab, found 'val_0.JPEG n01000000'"),
        ("val_0.JPEG\tn09999999\t0\n", "one of the classes"),
        ("../../../etc/passwd\tn01000000\n", "a file's name"),
        ("", "expected images, found none"),
        ("absent.JPEG\tn01000000\n", r"absent\.JPEG"),
    ],
)
def test_wrong_lists(tmp_path, content, message):
    write_tiny_imagenet(tmp_path)
    (tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text(content)
    with pytest.raises(ValueError, match=message):
        data.load("tiny-imagenet/val", root=tmp_path)


@pytest.mark.real_data
def test_real_tiny_imagenet(real_root):
    dataset = data.load("tiny-imagenet/val", root=real_root)
    assert dataset.images.shape == (10_000, 3, 32, 32)
    assert dataset.labels.bincount().tolist() == [50] * 200
