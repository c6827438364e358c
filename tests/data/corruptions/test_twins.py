"""Every corruption against its slow twin: exactly where nothing is random, with the same random numbers where
something is; shot noise in distribution."""

import numpy as np
import pytest
import torch

from regmixup.data import corrupt
from regmixup.data.catalogue import BENCHMARK, EXTRA
from regmixup.data.corruptions.constants import CONSTANTS
from tests.data.corruptions.photographs import arrays, pieces, whole
from tests.references.corruptions import TWINS, Fresh, Replay

ALL = (*BENCHMARK, *EXTRA)
FIXED = (
    "brightness", "contrast", "pixelate", "jpeg_compression", "saturate", "defocus_blur", "gaussian_blur", "zoom_blur",
)  # fmt: skip
RANDOM = tuple(name for name in ALL if name not in FIXED)
SEVERITIES = (1, 2, 3, 4, 5)


def twin_of(images, kind, name, severity, random=lambda index: None):
    """What the slow twin makes of each image. random: where its random numbers for an image come from."""
    # Whole numbers as integers, so that the twins can count with them.
    constants = tuple(int(v) if float(v).is_integer() else v for v in CONSTANTS[kind][name][severity - 1])
    return np.stack([TWINS[name](x, constants, random(index)) for index, x in enumerate(arrays(images))])


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", FIXED)
def test_small_photographs_agree_with_the_twin(name, severity):
    images = torch.cat([whole(32), pieces(8)])
    ours = arrays(corrupt(images, name, severity=severity)).astype(int)
    twin = twin_of(images, "cifar", name, severity)
    assert np.abs(ours - twin).mean() < 0.25  # of 255 levels
    assert np.abs(ours - twin).max() <= (0 if name == "jpeg_compression" else 1)


@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", FIXED)
def test_large_photographs_agree_with_the_twin(name, severity):
    images = whole(224)
    ours = arrays(corrupt(images, name, severity=severity)).astype(int)
    assert np.abs(ours - twin_of(images, "imagenet", name, severity)).mean() < 0.25


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", [name for name in RANDOM if name != "shot_noise"])
def test_the_same_random_numbers_give_the_twins_pixels(name, severity):
    images = pieces(4)
    ours = arrays(corrupt(images, name, severity=severity, generator=torch.Generator().manual_seed(7))).astype(int)
    different = np.abs(ours - twin_of(images, "cifar", name, severity, Replay(7, len(images)).image))
    if name == "glass_blur":  # cut twice: in flat regions the twin's rounding errors may cost a level each time
        assert different.max() <= 2
    else:
        assert (different > 0).mean() < 0.01
        assert different.mean() < 0.02


@pytest.mark.parametrize("name", ["glass_blur", "motion_blur", "snow", "elastic_transform", "frost"])
def test_the_same_random_numbers_give_the_twins_pixels_at_imagenets_strength(name):
    images = pieces(2, 96)
    generator = torch.Generator().manual_seed(7)
    ours = arrays(corrupt(images, name, severity=4, generator=generator, constants="imagenet")).astype(int)
    twin = twin_of(images, "imagenet", name, 4, Replay(7, len(images)).image)
    assert (np.abs(ours - twin) > (2 if name == "glass_blur" else 0)).mean() < 0.01


def test_shot_noise_has_the_twins_distribution():
    images, random = pieces(60), Fresh(2)
    twin = twin_of(images.repeat(2, 1, 1, 1), "cifar", "shot_noise", 3, lambda index: random).astype(float)
    many = images.repeat(10, 1, 1, 1)
    ours = arrays(corrupt(many, "shot_noise", severity=3, generator=torch.Generator().manual_seed(1))).astype(float)
    clean = arrays(images).astype(float)
    change, expected = (np.abs(x - np.tile(clean, (len(x) // 60, 1, 1, 1))).mean() for x in (ours, twin))
    assert change == pytest.approx(expected, rel=0.05)
    assert ours.mean() == pytest.approx(twin.mean(), rel=0.05)
    assert ours.std() == pytest.approx(twin.std(), rel=0.05)
