"""The parts the corruptions are made of, each against an independent definition."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats

from regmixup.data.corruptions.blur import scramble
from regmixup.data.corruptions.digital import jpeg_compression
from regmixup.data.corruptions.drops import canny, chamfer_distance, equalize
from regmixup.data.corruptions.noise import alias_table, shot_noise
from regmixup.data.corruptions.parts import gaussian, normal, uniform
from regmixup.data.corruptions.weather import SIDE, textures
from tests.data.corruptions.photographs import arrays, pieces, whole
from tests.references import corruptions as twins

CPU = torch.device("cpu")


@pytest.mark.parametrize("photons", [3.0, 60.0, 500.0])
def test_the_alias_table_is_the_poisson_distribution(photons):
    """The probability of each pixel value, put together from the table, is that of a clipped Poisson count."""
    threshold, alias = alias_table(photons)
    counts = np.arange(int(photons) + 1)
    pixel = (counts / photons * 255).astype(int)
    for level in (0, 1, 40, 128, 254, 255):
        expected = stats.poisson.pmf(counts, level / 255 * photons)
        expected[-1] += 1 - expected.sum()
        expected = np.bincount(pixel, expected, minlength=256)
        own = threshold[level] / 2**16
        found = own / 256 + np.bincount(alias[level], (1 - own) / 256, minlength=256)
        np.testing.assert_allclose(found, expected, atol=2e-7)


@pytest.mark.parametrize(("photons", "level"), [(3.0, 255), (12.0, 40), (60.0, 128)])
def test_shot_noise_draws_from_the_poisson_distribution(photons, level):
    images = torch.full((1, 1, 400, 500), level, dtype=torch.uint8)
    pixels = shot_noise(images, photons, generator=torch.Generator().manual_seed(0))
    counts = np.arange(int(photons) + 1)
    probability = stats.poisson.pmf(counts, level / 255 * photons)
    probability[-1] += 1 - probability.sum()
    expected = pixels.numel() * np.bincount((counts / photons * 255).astype(int), probability, minlength=256)
    seen = np.bincount(pixels.flatten().numpy(), minlength=256)
    often = expected > 50
    assert stats.chisquare(seen[often], expected[often] * seen[often].sum() / expected[often].sum()).pvalue > 1e-3
    assert seen[~often].sum() == pytest.approx(expected[~often].sum(), abs=30)


@pytest.mark.parametrize("count", [5, 1000])
def test_normal_numbers_are_torchs_own_and_uniform_ones_too(count):
    padded = -(-count // 16) * 16
    expected = torch.randn(padded, generator=torch.Generator().manual_seed(4))[:count]
    torch.testing.assert_close(normal((count,), CPU, torch.Generator().manual_seed(4)), expected, atol=1e-5, rtol=1e-5)
    expected = torch.rand(count, generator=torch.Generator().manual_seed(4))
    assert torch.equal(uniform((count,), CPU, torch.Generator().manual_seed(4)), expected)


@pytest.mark.parametrize(
    ("sigma", "cut", "border", "mode"),
    [
        (0.4, 4.0, "edge", "nearest"),
        (6.0, 4.0, "edge", "nearest"),
        (1.92, 3.0, "symmetric", "reflect"),
        (40.0, 3.0, "symmetric", "reflect"),
        (2.0, 4.0, "reflect", "mirror"),
    ],
)
def test_gaussian_is_scipys_at_every_border(sigma, cut, border, mode):
    x = torch.rand(2, 3, 17, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = ndimage.gaussian_filter(x.numpy(), (0, 0, sigma, sigma), mode=mode, truncate=cut)
    np.testing.assert_allclose(gaussian(x, sigma, cut=cut, border=border).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_scrambling_all_at_once_is_scrambling_pixel_by_pixel(reach):
    random = np.random.default_rng(reach)
    x = random.integers(0, 256, (2, 1, 20, 26), dtype=np.uint8)
    offset = random.integers(-reach, reach, (2, 2, 20 - 2 * reach, 26 - 2 * reach))
    expected = x.copy()
    for h in range(20 - reach, reach, -1):
        for w in range(26 - reach, reach, -1):
            for n in range(2):
                dy, dx = offset[n, :, h - reach - 1, w - reach - 1]
                expected[n, :, h, w] = expected[n, :, h + dy, w + dx]
    found = scramble(torch.from_numpy(x), torch.from_numpy(offset), reach)
    assert np.array_equal(found.numpy(), expected)


@pytest.fixture(scope="module")
def blobs():
    field = np.random.default_rng(0).normal(size=(4, 40, 52))
    smooth = np.stack([ndimage.gaussian_filter(part, 1.2) for part in field])
    return np.where(smooth > 0.2, np.floor(170 + 200 * smooth).clip(0, 255), 0)


def test_canny_finds_the_twins_edges(blobs):
    found = canny(torch.from_numpy(blobs).float(), 50, 150).numpy()
    assert np.array_equal(found, np.stack([twins.canny(part, 50, 150) for part in blobs]))
    assert 0.02 < found.mean() < 0.5


def test_chamfer_distances_are_shortest_paths(blobs):
    edge = blobs[:2] > 200
    edge[1] = False
    edge[1, 3, 5] = True
    expected = np.stack([twins.chamfer(part, 20) for part in edge])
    np.testing.assert_allclose(chamfer_distance(torch.from_numpy(edge), 20).numpy(), expected, atol=1e-4)
    assert chamfer_distance(torch.zeros(1, 5, 5, dtype=torch.bool), 20).unique().tolist() == [20.0]


def test_equalizing_follows_the_twin_and_leaves_flat_images():
    levels = np.random.default_rng(0).binomial(20, 0.3, (3, 12, 9)).astype(np.uint8)
    levels[2] = 7
    found = equalize(torch.from_numpy(levels).float()).numpy()
    assert np.array_equal(found, np.stack([twins.equalize(part) for part in levels]))
    assert (found[2] == 7).all()


@pytest.mark.parametrize(("quality", "height", "width"), [(80, 32, 32), (40, 45, 61), (7, 17, 8)])
def test_jpeg_is_pils_at_any_size(quality, height, width):
    images = pieces(6, 64)[..., :height, :width]
    twin = np.stack([twins.jpeg_compression(np.ascontiguousarray(x), (quality,), None) for x in arrays(images)])
    assert np.array_equal(arrays(jpeg_compression(images, quality)), twin)


def test_grey_jpeg_is_pils():
    grey = whole(32)[:, :1]
    for image, ours in zip(grey, jpeg_compression(grey, 50), strict=True):
        file = io.BytesIO()
        Image.fromarray(image[0].numpy()).save(file, "JPEG", quality=50)
        assert np.array_equal(np.asarray(Image.open(file)), ours[0].numpy())


def test_the_ice_textures_have_the_measured_means_and_no_seams():
    table = textures().double()
    assert table.shape == (5, 3, SIDE, SIDE)
    means = [[78, 149, 166], [201, 205, 215], [201, 205, 215], [138, 153, 165], [112, 123, 135]]
    np.testing.assert_allclose(table.mean(dim=(2, 3)).numpy(), means, atol=1)
    step = (table - table.roll(1, dims=-1)).abs().mean(dim=(0, 1, 2))
    assert step[0] < 1.5 * step.mean()  # across the seam as elsewhere
    assert len({textures()[k].numpy().tobytes() for k in range(5)}) == 5
