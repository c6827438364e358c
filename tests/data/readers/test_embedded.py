"""The embedded datasets: digits, corrupted and mirrored digits, and patches of photographs."""

import sys

import numpy as np
import pytest
import sklearn.datasets
import torch

from regmixup import data
from regmixup.data.catalogue import DIGIT_CORRUPTIONS, find
from regmixup.data.readers import embedded

SPLITS = ("digits/train", "digits/val", "digits/test")
FINGERPRINTS = {
    "digits/train": "561f48e52da983c56e8ccbf92b97587005b04a3906cd9079eb54cee6cefd11d5",
    "digits/val": "6b88d4f45540eff294596608b5be13dfe9c419607c3469696fb9d770997c18b6",
    "digits/test": "ef4d0bcfdd879f6c2c124eb286f75e226ce2cfa94c6bd60890f93908513f41b1",
    "digits-mirrored/test": "45f4a0211ce441d5300388d109f9a5dec7fbca748229e04bd004ffc99cb18847",
    "digits-c/gaussian_noise/3": "f0be865960a6fdbca645d1f1f02c8c7b46f54831fd624c01f4b27b80f26fece3",
    "photographs/test": "3e743715fbc8240b851bc2947d2c0ec5ceac777432624d2e94569637e2a63fb4",
}


def keys(dataset):
    """Each image with its label, as one hashable value."""
    return [(image.numpy().tobytes(), int(label)) for image, label in zip(dataset.images, dataset.labels, strict=True)]


def test_they_are_read_without_scikit_learn(monkeypatch):
    for name in ("sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    embedded._arrays.cache_clear()
    assert len(data.load("digits/test")) == 899
    assert len(data.load("photographs/test")) == 520


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_the_pixels_never_change(name):
    assert data.load(name).fingerprint == FINGERPRINTS[name]


def test_the_splits_share_no_image_and_together_are_scikit_learns_digits():
    bunch = sklearn.datasets.load_digits()
    images = np.rint(bunch.images * 255 / 16).astype(np.uint8)[:, None]
    everything = sorted((image.tobytes(), int(label)) for image, label in zip(images, bunch.target, strict=True))
    assert len(set(everything)) == len(everything) == 1797
    assert sorted(key for name in SPLITS for key in keys(data.load(name))) == everything


def test_loading_twice_gives_independent_tensors():
    for name in ("digits/test", "photographs/test"):
        data.load(name).images.zero_()
        assert data.load(name).fingerprint == FINGERPRINTS[name]


def test_mirrored_digits_are_flipped_test_digits_of_the_classes_that_are_no_digit_then():
    test, mirrored = data.load("digits/test"), data.load("digits-mirrored/test")
    keep = [i for i, label in enumerate(test.labels.tolist()) if label in (3, 4, 6, 7, 9)]
    assert torch.equal(mirrored.images.flip(-1), test.images[keep])
    assert torch.equal(mirrored.labels, test.labels[keep])


@pytest.mark.parametrize("corruption", DIGIT_CORRUPTIONS)
def test_corrupted_digits_keep_their_labels_and_get_stronger_with_severity(corruption):
    test = data.load("digits/test")
    distances = []
    for severity in range(1, 6):
        corrupted = data.load(f"digits-c/{corruption}/{severity}")
        assert corrupted.images.shape == test.images.shape
        assert torch.equal(corrupted.labels, test.labels)
        distances.append((corrupted.images.double() - test.images.double()).abs().mean().item())
    assert distances[0] > 0
    assert distances == sorted(set(distances))


def test_severities_draw_their_own_noise():
    """The same noise at another scale would make the severities one sample instead of five."""
    test = data.load("digits/test").images.double()
    inner = (test > 90) & (test < 165)  # where the noise is seldom clipped
    first, second = ((data.load(f"digits-c/gaussian_noise/{s}").images.double() - test)[inner] for s in (1, 2))
    assert torch.corrcoef(torch.stack([first, second]))[0, 1].abs() < 0.1


@pytest.mark.parametrize("name", [n for n in data.names() if not find(n).files and find(n).severity < 2])
def test_the_record_of_an_embedded_dataset_is_right(name):
    record, dataset = find(name), data.load(name)
    assert dataset.name == name
    assert record.images == len(dataset)
    assert dataset.images.dtype == torch.uint8
    assert dataset.shape == (1, 8, 8)
