"""The embedded datasets: digits, corrupted and mirrored digits, and patches of photographs."""

import numpy as np
import pytest
import sklearn.datasets
import torch

from regmixup import data
from regmixup.data.catalogue import DIGIT_CORRUPTIONS, find

SPLITS = ("digits/train", "digits/val", "digits/test")
FINGERPRINTS = {
    "digits/train": "561f48e52da983c56e8ccbf92b97587005b04a3906cd9079eb54cee6cefd11d5",
    "digits/val": "6b88d4f45540eff294596608b5be13dfe9c419607c3469696fb9d770997c18b6",
    "digits/test": "ef4d0bcfdd879f6c2c124eb286f75e226ce2cfa94c6bd60890f93908513f41b1",
    "digits-mirrored/test": "45f4a0211ce441d5300388d109f9a5dec7fbca748229e04bd004ffc99cb18847",
}


def keys(dataset):
    """Each image with its label, as one hashable value."""
    return [(image.numpy().tobytes(), int(label)) for image, label in zip(dataset.images, dataset.labels, strict=True)]


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_the_pixels_never_change(name):
    assert data.load(name).fingerprint == FINGERPRINTS[name]


def test_the_splits_share_no_image_and_together_are_all_of_them():
    bunch = sklearn.datasets.load_digits()
    images = np.rint(bunch.images * 255 / 16).astype(np.uint8)[:, None]
    everything = sorted((image.tobytes(), int(label)) for image, label in zip(images, bunch.target, strict=True))
    assert len(set(everything)) == len(everything) == 1797
    assert sorted(key for name in SPLITS for key in keys(data.load(name))) == everything


@pytest.mark.parametrize(("name", "fraction"), [*zip(SPLITS, (0.25, 0.25, 0.5), strict=True)])
def test_every_class_is_divided_alike(name, fraction):
    whole = torch.from_numpy(np.bincount(sklearn.datasets.load_digits().target))
    counts = data.load(name).labels.bincount(minlength=10)
    assert (counts - fraction * whole).abs().max() <= 1


@pytest.mark.parametrize("name", SPLITS)
def test_images_are_grey_8x8_uint8_over_the_full_range(name):
    dataset = data.load(name)
    assert dataset.images.dtype == torch.uint8
    assert dataset.images.shape[1:] == (1, 8, 8)
    assert (int(dataset.images.min()), int(dataset.images.max())) == (0, 255)
    assert dataset.classes == tuple("0123456789")
    assert dataset.name == name


def test_loading_twice_gives_independent_tensors():
    data.load("digits/test").images.zero_()
    assert data.load("digits/test").fingerprint == FINGERPRINTS["digits/test"]


def test_mirrored_digits_are_flipped_test_digits_of_the_classes_that_are_no_digit_then():
    test, mirrored = data.load("digits/test"), data.load("digits-mirrored/test")
    keep = [i for i, label in enumerate(test.labels.tolist()) if label in (3, 4, 6, 7, 9)]
    assert torch.equal(mirrored.images.flip(-1), test.images[keep])
    assert torch.equal(mirrored.labels, test.labels[keep])
    assert not set(keys(mirrored)) & set(keys(test))


@pytest.mark.parametrize("corruption", DIGIT_CORRUPTIONS)
def test_corrupted_digits_keep_their_labels_and_get_stronger_with_severity(corruption):
    test = data.load("digits/test")
    distances = []
    for severity in range(1, 6):
        corrupted = data.load(f"digits-c/{corruption}/{severity}")
        assert corrupted.images.dtype == torch.uint8
        assert corrupted.images.shape == test.images.shape
        assert torch.equal(corrupted.labels, test.labels)
        distances.append((corrupted.images.double() - test.images.double()).abs().mean().item())
    assert distances[0] > 0
    assert distances == sorted(set(distances))


def test_corrupted_digits_are_the_same_every_time():
    torch.manual_seed(0)
    first = data.load("digits-c/gaussian_noise/3")
    torch.manual_seed(1)
    assert data.load("digits-c/gaussian_noise/3").fingerprint == first.fingerprint


def test_severities_draw_their_own_noise():
    """The same noise at another scale would make the severities one sample instead of five."""
    test = data.load("digits/test").images.double()
    inner = (test > 90) & (test < 165)  # where the noise is seldom clipped
    first, second = ((data.load(f"digits-c/gaussian_noise/{s}").images.double() - test)[inner] for s in (1, 2))
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 0.1


@pytest.mark.parametrize("name", [n for n in data.names() if not find(n).files])
def test_every_listed_name_loads_under_its_name(name):
    dataset = data.load(name)
    assert dataset.name == name
    assert dataset.images.shape[1:] == (1, 8, 8)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "a dataset must be named by a string, such as digits/train or folder:PATH, got None"),
        ("digits/tset", "unknown dataset 'digits/tset': did you mean 'digits/test'"),
        ("digits", "unknown dataset 'digits': .*Available: digits/test, digits/train, digits/val"),
        ("digit/test", "unknown dataset 'digit/test': did you mean 'digits/test'"),
        ("digits-c/contrats/3", "unknown dataset 'digits-c/contrats/3': did you mean 'digits-c/contrast/"),
        ("digits-c/contrast/6", "unknown dataset 'digits-c/contrast/6': did you mean 'digits-c/contrast/"),
        ("digits-c/contrast", "unknown dataset 'digits-c/contrast'"),
        ("digits-mirrored/train", "unknown dataset 'digits-mirrored/train': did you mean 'digits-mirrored/test'"),
        ("path:digits/tset", "unknown dataset 'path:digits/tset': did you mean 'digits/test'"),
        ("", "unknown dataset ''"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(name, message):
    with pytest.raises(ValueError, match=message):
        data.load(name)


@pytest.mark.parametrize(
    ("images", "corruption", "severity", "message"),
    [
        (
            torch.zeros(1, 1, 8, 8, dtype=torch.uint8),
            "contrats",
            1,
            "unknown corruption 'contrats': did you mean 'contrast'",
        ),
        (torch.zeros(1, 1, 8, 8, dtype=torch.uint8), "contrast", 0, "severity must be .*got 0"),
        (torch.zeros(1, 1, 8, 8, dtype=torch.uint8), "contrast", 6, "severity must be .*got 6"),
        (torch.zeros(1, 1, 8, 8), "contrast", 1, r"images must be uint8 \(N, C, H, W\), got torch.float32"),
        (torch.zeros(8, 8, dtype=torch.uint8), "contrast", 1, r"images must be uint8 .* \(8, 8\)"),
    ],
)
def test_corrupting_what_cannot_be_corrupted_is_a_clear_error(images, corruption, severity, message):
    with pytest.raises(ValueError, match=message):
        data.corrupt(images, corruption, severity=severity)


# The photographs are JPEG files: a decoder that rounds otherwise would change this.
FINGERPRINT = "3e743715fbc8240b851bc2947d2c0ec5ceac777432624d2e94569637e2a63fb4"


@pytest.fixture(scope="module")
def photographs():
    return data.load("photographs/test")


def test_the_pixels_of_the_photographs_never_change(photographs):
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
