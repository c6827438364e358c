"""Loaders for training, and images as a network takes them."""

from dataclasses import replace

import pytest
import torch

import regmixup as rm
from regmixup.training.loading import make_loaders, match_channels
from tests.training.short import BATCH, config


@pytest.mark.parametrize("floats", [False, True])
def test_images_in_memory_are_augmented_one_by_one_by_rand_augment(floats):
    digits = rm.data.load("digits/train")
    dataset = replace(digits, images=digits.images / 255) if floats else digits
    loaders = [
        make_loaders(dataset, config(rand_augment=number, crop_padding=0), torch.device("cpu"), workers=0, mine=[0])[0]
        for number in (0, 2)
    ]
    plain, augmented = (next(iter(loader.epoch(0))) for loader in loaders)
    assert augmented.x.shape == plain.x.shape == (BATCH, 1, 8, 8)
    assert augmented.x.dtype == torch.uint8
    assert torch.equal(augmented.y, plain.y)
    pixels = (plain.x * 255).round() if floats else plain.x
    assert not torch.equal(augmented.x.float(), pixels.float())


def test_colour_becomes_grey_and_keeps_its_type():
    images = torch.tensor([[[[10]], [[20]], [[31]]]], dtype=torch.uint8)
    assert match_channels(images, 1).tolist() == [[[[18]]]]
    assert match_channels(images, 1).dtype == torch.uint8
    torch.testing.assert_close(
        match_channels(images / 255, 1), torch.full((1, 1, 1, 1), (10 * 0.299 + 20 * 0.587 + 31 * 0.114) / 255)
    )
    assert match_channels(images, 3) is images
