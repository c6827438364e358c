"""PixMix against its slow twin and its distributions, and the pictures that it mixes with."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from regmixup.augmentations import PixMix
from regmixup.augmentations._pictures import COUNT, HEIGHTS, bank
from tests.objectives.cases import seeded
from tests.references import augmentations as slow

SHAPE = (3, 16, 20)
CPU = torch.device("cpu")


def pixels_of(count, shape=SHAPE):
    return torch.randint(0, 256, (count, *shape), generator=seeded(), dtype=torch.uint8)


@pytest.mark.parametrize(
    "pixmix", [PixMix(), PixMix(1, beta=0.5, severity=10, pictures=("perlin",))], ids=["default", "strong"]
)
@pytest.mark.parametrize("shape", [SHAPE, (1, 12, 12)], ids=str)
def test_rounds_are_those_of_the_slow_twin(pixmix, shape):
    pixels, count = pixels_of(40, shape), 40
    draw = pixmix.draw(count, shape, seeded(1))
    assert {int(number) for number in draw.rounds} == set(range(pixmix.rounds + 1))
    pictures = bank(pixmix.pictures, shape, CPU).numpy()
    by_hand = [slow.pixmix(pixels[i].numpy(), pictures[draw.picture[i, 0]], draw, i) for i in range(count)]
    ours = pixmix.apply(pixels.double() / 255, draw).numpy()
    np.testing.assert_allclose(ours, by_hand, rtol=0, atol=1e-9)
    in_float32 = pixmix.apply(pixels.float() / 255, draw).numpy()
    np.testing.assert_allclose(in_float32, by_hand, rtol=0, atol=1e-4)


@pytest.fixture(scope="module")
def many():
    return PixMix().draw(5000, 32, seeded())


def test_rounds_pictures_shifts_and_coins_are_uniform(many):
    for drawn, size in (
        (many.rounds, 5),
        (many.picture[:, 0], COUNT),
        (many.picture[:, 1], 32),
        (many.picture[:, 2], 32),
    ):
        assert stats.chisquare(drawn.bincount(minlength=size).numpy()).pvalue > 0.01
        assert drawn.max() == size - 1
    coins = (many.operation[:, 0] == 0, many.takes_picture, many.multiplies, many.weight[1] < 0)
    for coin in coins:  # three standard deviations of 5,000 coins are .021
        assert coin.double().mean().item() == pytest.approx(0.5, abs=0.022)
    assert (many.operation[:, 1:] > 0).all()


def test_weights_are_the_released_codes_beta_variables(many):
    a, b = many.weight
    positive = b >= 0
    for drawn, law in (
        (a[positive], stats.beta(3, 1)),
        (b[positive], stats.beta(1, 3)),
        (a[~positive] - 1, stats.beta(1, 3)),
        (-b[~positive], stats.beta(1, 3)),
    ):
        assert stats.kstest(drawn.numpy(), law.cdf).pvalue > 0.01
    shares = torch.stack([(1 - a).abs(), b.abs()]).flatten(1)
    assert abs(float(torch.corrcoef(shares)[0, 1])) < 0.05  # drawn apart


def test_without_rounds_an_image_stays_or_is_one_of_augmixs_operations():
    pixels = pixels_of(30)
    draw = PixMix(0).draw(30, SHAPE, seeded())
    kept = draw.operation[:, 0] == 0
    changed = PixMix(0).apply(pixels.float() / 255, draw)
    assert torch.equal(changed[kept], pixels[kept].float() / 255)
    assert (changed[~kept] != pixels[~kept].float() / 255).flatten(1).any(1).double().mean() > 0.8


def test_black_pixels_and_pictures_give_finite_numbers_in_range():
    draw = PixMix(pictures=("gratings",)).draw(200, SHAPE, seeded())
    for images in (torch.zeros(200, *SHAPE), torch.ones(200, *SHAPE)):
        for dtype in (torch.float32, torch.bfloat16):
            mixed = PixMix(pictures=("gratings",)).apply(images.to(dtype), draw)
            assert ((mixed >= 0) & (mixed <= 1)).all()


# ---------------------------------------------------------------------------------------------------- pictures


@pytest.mark.parametrize("kind", HEIGHTS)
def test_pictures_of_each_kind_differ_use_the_whole_range_and_are_periodic(kind):
    pictures = bank((kind,), (3, 32, 24), CPU)
    assert (pictures.shape, pictures.dtype) == ((COUNT, 3, 32, 24), torch.uint8)
    assert len(pictures.unique(dim=0)) > 0.99 * COUNT
    assert (pictures.amin(), pictures.amax()) == (0, 255)
    assert (pictures.double().std((2, 3)).amax(1) > 5).all()  # none is flat: that would be a change of brightness
    steps = pictures.double().diff(dim=3).abs().mean(), (pictures[..., 0].double() - pictures[..., -1]).abs().mean()
    assert steps[1] < 1.5 * steps[0]  # the step around the border is as the steps inside


def test_a_bank_has_every_kind_alike_is_kept_and_depends_on_nothing_else():
    state = torch.get_rng_state()
    kinds = ("plasma", "gratings", "perlin")
    pictures = bank(kinds, SHAPE, CPU)
    assert pictures is bank(kinds, SHAPE, CPU)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(pictures) == COUNT
    with torch.device("meta"):  # as a user's default device
        assert bank(("plasma",), (1, 5, 7), CPU).device == CPU
    # Plasma has its strength in low frequencies, gratings have theirs in few.
    thirds = [pictures[: COUNT // 3], pictures[COUNT // 3 + 1 : 2 * COUNT // 3], pictures[2 * COUNT // 3 + 1 :]]
    spectra = [torch.fft.rfft2(part.double()).abs().sum(1).flatten(1)[:, 1:] for part in thirds]
    plasma, gratings, perlin = ((spectrum.amax(1) / spectrum.sum(1)).median() for spectrum in spectra)
    assert gratings > 1.5 * max(plasma, perlin)


def test_wrong_fields_are_refused():
    for fields, message in (
        ({"rounds": -1}, "rounds must be an integer >= 0, got -1"),
        ({"beta": 0}, "beta must be a finite number > 0, got 0"),
        ({"severity": 11}, "severity must be a finite number >= 0.1 and <= 10, got 11"),
        ({"pictures": ()}, r"pictures must name one kind or more, in a tuple, got \(\)"),
        ({"pictures": "plasma"}, "in a tuple, got 'plasma'"),
        ({"pictures": ("perlyn",)}, "unknown kind of pictures 'perlyn': did you mean 'perlin'"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(PixMix(), **fields)
