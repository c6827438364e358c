"""Loaders for training, and images as a network takes them."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

import regmixup as rm
from regmixup.training.config import TrainConfig
from regmixup.training.loading import make_loaders, match_channels, train_transform
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


def assert_alike(transform, twin, channels=3, size=(20, 31)):
    """Ten times, from the same seeds. Worker processes may be spawned, so a transform must survive pickling."""
    pixels = np.random.default_rng(0).integers(0, 256, (*size, channels), dtype=np.uint8)
    image, transform = Image.fromarray(pixels.squeeze()), pickle.loads(pickle.dumps(transform))
    for seed in range(10):
        torch.manual_seed(seed)
        found = transform(image)
        torch.manual_seed(seed)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(twin(image)))


def test_files_are_cropped_flipped_jittered_and_augmented_by_torchvision_in_this_order():
    ours = config(image_size=8, color_jitter=0.4, rand_augment=2, magnitude=15, crop_area=0.2)
    steps = [v2.RandomResizedCrop(8, (0.2, 1)), v2.RandomHorizontalFlip(0.0)]
    steps += [v2.ColorJitter(0.4, 0.4, 0.4), v2.RandAugment(2, 15)]
    assert_alike(train_transform(ours, shape=None), v2.Compose(steps))
    steps[1] = v2.RandomHorizontalFlip()
    assert_alike(train_transform(replace(ours, flip=True), shape=None), v2.Compose(steps))


@pytest.mark.parametrize("channels", [1, 3])
def test_images_in_memory_are_cropped_from_their_padded_selves(channels):
    ours = config(flip=True, crop_padding=2, rand_augment=1, color_jitter=0.4)
    twin = v2.Compose([v2.RandomCrop((6, 7), 2), v2.RandomHorizontalFlip(), v2.RandAugment(1, 9)])
    assert_alike(train_transform(ours, shape=(channels, 6, 7)), twin, channels, size=(6, 7))


def test_cutout_comes_last():
    ours = config(image_size=8, color_jitter=0.0, flip=True, cutout=4, mean=(1 / 255, 2 / 255, 3 / 255), std=(1, 1, 1))
    plain = v2.Compose([v2.RandomResizedCrop(8), v2.RandomHorizontalFlip(), v2.PILToTensor()])

    def twin(image):
        pixels, centre = plain(image), (8 * torch.rand(1, 2, dtype=torch.float64)).long()[0]
        top, left = (max(int(place) - 2, 0) for place in centre)
        bottom, right = (min(int(place) + 2, 8) for place in centre)
        pixels[:, top:bottom, left:right] = torch.tensor([1, 2, 3], dtype=torch.uint8)[:, None, None]
        return pixels

    assert_alike(train_transform(ours, shape=None), twin)


@pytest.mark.parametrize(
    ("name", "value"), [("image_size", 32), ("crop_area", 0.5), ("color_jitter", 0.8), ("orient", True)]
)
def test_images_in_memory_refuse_settings_of_image_files(tmp_path, name, value):
    default = getattr(TrainConfig, name)
    message = rf"^{name} must be {default} for digits/train, whose images are in memory .*, got {value}$"
    with pytest.raises(ValueError, match=message):
        rm.train(rm.configure("digits", "dnn", epochs=1, **{name: value}), tmp_path, dry_run=True)
    rm.train(rm.configure("digits", "dnn", epochs=1, image_size=8), tmp_path, dry_run=True)  # their own
