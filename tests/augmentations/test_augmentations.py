"""What every augmentation promises, and each by hand: noise, Cutout, AugMix's chains."""

import dataclasses
import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats

import regmixup as rm
from regmixup import augmentations
from regmixup.augmentations import AUGMENTATIONS, Augmentation, AugMixChains, Cutout, GaussianNoise, PixMix
from regmixup.augmentations.basic import NoiseDraw
from regmixup.config import decode, encode
from regmixup.mixing import Draw
from tests.objectives.cases import batch, seeded
from tests.references import augmentations as slow
from tests.references.augmix import augment

SIZE = (3, 6, 8)
each_augmentation = pytest.mark.parametrize(
    "augmentation", [GaussianNoise(), Cutout(3), AugMixChains(), PixMix()], ids=repr
)


@each_augmentation
def test_the_seed_decides_the_result_and_pixels_equal_floats(augmentation):
    x = batch()[0]
    pixels = (255 * x).round().to(torch.uint8)
    first, again, other = (augmentation(pixels, seeded(seed)) for seed in (1, 1, 2))
    assert first.dtype == torch.float32
    assert first.shape == x.shape
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first, augmentation(pixels.float() / 255, seeded(1)))
    torch.manual_seed(1)
    assert torch.equal(first, augmentation(pixels))


@each_augmentation
def test_images_keep_their_type_and_memory_order(augmentation):
    x = batch()[0].bfloat16().to(memory_format=torch.channels_last)
    before = x.clone()
    changed = augmentation(x, seeded())
    assert changed.dtype == torch.bfloat16
    assert changed.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(x, before)


@each_augmentation
def test_a_draw_for_other_images_is_refused(augmentation):
    x = batch()[0]
    for draw in (augmentation.draw(3, SIZE, seeded()), Draw()):
        with pytest.raises(ValueError, match=rf"^draw\.\w+ must have shape .* for {type(augmentation).__name__}\("):
            augmentation.apply(x, draw)


@each_augmentation
def test_it_is_recorded_in_a_configuration_and_built_by_name(augmentation):
    config = rm.configure("digits", "dnn", objective=rm.Vicinal(augmentation))
    assert decode(rm.TrainConfig, json.loads(json.dumps(encode(config)))) == config
    (name,) = (name for name, cls in AUGMENTATIONS.items() if cls is type(augmentation))
    assert isinstance(augmentations.build(name), type(augmentation))


def test_one_of_ones_own_is_recorded_too():
    @dataclass(frozen=True, kw_only=True)
    class Mirror(Augmentation):
        def draw(self, batch_size, image_size, generator=None):
            return Draw()

        def apply(self, x, draw):
            return x.flip(3)

    config = rm.configure("digits", "dnn", objective=rm.Vicinal(Mirror()))
    assert decode(rm.TrainConfig, json.loads(json.dumps(encode(config)))) == config


def test_unknown_names_and_wrong_fields_are_refused():
    with pytest.raises(ValueError, match="unknown transform 'pixmx': did you mean 'pixmix'"):
        augmentations.build("pixmx")
    for augmentation, fields, message in (
        (GaussianNoise(), {"sigma": -1}, "sigma must be a finite number >= 0, got -1"),
        (Cutout(), {"side": 0}, "side must be an integer >= 2, got 0"),
        (AugMixChains(), {"width": 0}, "width must be an integer >= 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(augmentation, **fields)
    for message, call in (
        (r"^image_size must be \(channels, height, width\)", lambda: GaussianNoise().draw(4, 8)),
        ("images", lambda: Cutout().apply(torch.rand(2, 5), Cutout().draw(2, 8))),
        ("AugMixChains works on them and not on normalised", lambda: AugMixChains()(2 * batch()[0])),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# ------------------------------------------------------------------------------------------------------- noise


def test_noise_is_standard_normal_and_its_own_for_every_image_channel_and_pixel():
    noise = GaussianNoise().draw(10, SIZE, seeded()).noise
    assert (noise.shape, noise.dtype) == ((10, *SIZE), torch.float32)
    assert noise.unique().numel() > 0.999 * noise.numel()
    assert stats.kstest(noise.flatten().numpy(), stats.norm.cdf).pvalue > 0.05


def test_images_in_half_precision_take_the_noise_in_float32():
    x = batch()[0].bfloat16()
    noise = torch.randn(7, *SIZE, generator=seeded())
    changed = GaussianNoise(0.01).apply(x, NoiseDraw(noise=noise))
    assert torch.equal(changed, (x.float() + 0.01 * noise).bfloat16())
    assert not torch.equal(changed, x + (0.01 * noise).bfloat16())


# ------------------------------------------------------------------------------------------------------ Cutout


def test_a_side_of_1_would_cut_nothing():
    with pytest.raises(ValueError, match="side must be an integer >= 2, got 1"):
        Cutout(1)


@pytest.mark.parametrize("side", [2, 3, 4, 20])
def test_cutout_is_its_slow_twin(side):
    x = batch(9, dtype=torch.float64)[0]
    draw = Cutout(side).draw(9, SIZE, seeded())
    colour = x.numpy().mean(axis=(0, 2, 3))
    by_hand = [slow.cutout(image, box, colour) for image, box in zip(x.numpy(), draw.box.tolist(), strict=True)]
    np.testing.assert_allclose(Cutout(side).apply(x, draw).numpy(), by_hand, rtol=1e-12)


def test_squares_have_their_side_but_for_the_border_and_a_uniform_centre():
    side, height, width = 4, 12, 16
    top, bottom, left, right = Cutout(side).draw(20_000, (height, width), seeded()).box.unbind(1)
    inner = (top > 0) & (bottom < height) & (left > 0) & (right < width)
    assert set((bottom - top)[inner].tolist()) == set((right - left)[inner].tolist()) == {side}
    assert (top.min(), bottom.max(), left.min(), right.max()) == (0, height, 0, width)
    # Around the first row two rows are in the image; around the last, the row itself and both before it.
    assert set((bottom - top).tolist()) == set((right - left).tolist()) == {2, 3, 4}
    row, column = bottom[inner] - side // 2, right[inner] - side // 2
    assert stats.chisquare(row.bincount()[row.min() :].numpy()).pvalue > 0.01
    assert stats.chisquare(column.bincount()[column.min() :].numpy()).pvalue > 0.01


# ------------------------------------------------------------------------------------------------ AugMix's chains


def test_chains_are_those_of_the_slow_twin():
    """Exactly, but for pixels one grey level off at the centre of images with odd sides."""
    pixels = torch.randint(0, 256, (3, 3, 15, 22), generator=seeded(), dtype=torch.uint8)
    draw = AugMixChains().draw(3, (15, 22), seeded(1))
    ours = AugMixChains().apply(pixels.double() / 255, draw).numpy()
    difference = np.abs(ours - [augment(image, draw, index) for index, image in enumerate(pixels.numpy())])
    assert difference.max() <= 1.01 / 255
    assert (difference > 1e-12).mean() < 0.005
