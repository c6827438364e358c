"""ImageSet: what it rejects, how it identifies its pixels; grey; torch datasets in memory; `path:NAME`."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset

from regmixup import data
from regmixup.data.images import FolderSet, ImageSet, interpolate, luma, to_grey
from regmixup.mixing import to_float

from .official import random_images


def pixels(count=5, channels=3):
    return torch.randint(256, (count, channels, 4, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def image_set(images=None, labels=None, classes=("a", "b", "c")):
    images = pixels() if images is None else images
    labels = torch.arange(len(images)) % 3 if labels is None else labels
    return ImageSet(images, labels, classes, "toy/test")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(0, 3, 4, 6, dtype=torch.uint8), "the dataset is empty"),
        (
            torch.zeros(5, 3, 4, 6, dtype=torch.int64),
            r"images must be uint8 or float .* got torch.int64 \(5, 3, 4, 6\)",
        ),
    ],
)
def test_images_it_cannot_use_are_refused(images, message):
    with pytest.raises(ValueError, match=f"toy/test: {message}"):
        image_set(images)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(4, dtype=torch.int64), r"labels must be int64 of shape \(5,\), .* got torch.int64 \(4,\)"),
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


def test_grey_is_pillows_for_every_colour_tried_and_that_of_floats():
    colours = torch.randint(256, (3, 300, 300), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    expected = np.asarray(Image.fromarray(colours.permute(1, 2, 0).contiguous().numpy()).convert("L"))
    assert np.array_equal(to_grey(colours)[0].numpy(), expected)
    torch.testing.assert_close(to_grey(colours / 255), luma(colours.float()) / 255)


def test_images_in_memory_and_on_disk_are_used_alike(tmp_path):
    """What a caller does with either: the size, a selection, and the pixels, part by part."""
    stored = pixels(6)
    for index, image in enumerate(stored):
        (tmp_path / "ab"[index % 2]).mkdir(exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "ab"[index % 2] / f"{index}.png")
    order = [0, 2, 4, 1, 3, 5]
    paths = tuple(str(tmp_path / "ab"[index % 2] / f"{index}.png") for index in order)
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    memory = ImageSet(stored[order], labels, ("a", "b"), "toy")
    files = FolderSet(paths, labels, ("a", "b"), "toy", tmp_path)
    assert memory.shape == (3, 4, 6)
    assert files.shape is None
    assert repr(memory) == "ImageSet('toy', 6 images of 3x4x6 torch.uint8, 2 classes)"
    assert repr(files) == "FolderSet('toy', 6 files, 2 classes)"
    for images in (memory, files):
        assert len(images) == 6
        assert len(images.fingerprint) == 64
        chosen = replace(images, info={"of": "two"}).select(torch.tensor([5, 1]))
        assert (chosen.name, chosen.info, chosen.labels.tolist()) == ("toy", {"of": "two"}, [1, 0])
        parts = list(images.parts(Image.open, size=4))
        assert [part.name for part in parts] == ["toy"] * len(parts)
        assert torch.equal(torch.cat([part.images for part in parts]), stored[order])
        assert torch.equal(torch.cat([part.labels for part in parts]), labels)


PIXELS = random_images(3, seed=1, side=5)


class Pairs(list[tuple[Any, Any]]):
    """A dataset is anything with a length and items."""


@pytest.mark.parametrize(
    ("convert", "label"),
    [
        (Image.fromarray, 1),
        (lambda p: p, np.int64(1)),
        (lambda p: torch.from_numpy(p).permute(2, 0, 1), torch.tensor(1)),
        (lambda p: p, torch.tensor([1])),
    ],
)
def test_kinds_of_images_and_labels(convert, label):
    found = data.from_dataset(Pairs((convert(p), label) for p in PIXELS), "mine")
    np.testing.assert_array_equal(found.images.permute(0, 2, 3, 1).numpy(), PIXELS)
    assert found.labels.tolist() == [1, 1, 1]


def test_16_bits_are_scaled_and_not_clipped():
    pixels = (PIXELS[0, :, :, 0].astype(np.uint16) << 8) + 255
    found = data.from_dataset(Pairs([(Image.fromarray(pixels), 0)]), "mine")
    np.testing.assert_array_equal(found.images[0], np.stack([PIXELS[0, :, :, 0]] * 3))


def test_grey_and_class_names():
    pairs = Pairs((Image.fromarray(p[:, :, 0]), 0) for p in PIXELS)
    pairs.classes = ["cat", "dog"]
    found = data.from_dataset(pairs, "mine")
    assert found.images.shape == (3, 1, 5, 5)
    assert found.classes == ("cat", "dog")
    assert data.from_dataset(Subset(Subset(pairs, [0, 2]), [1]), "mine").classes == ("cat", "dog")


def test_floats_stay_in_the_unit_interval():
    found = data.from_dataset(Pairs((torch.full((3, 2, 2), v, dtype=torch.float64), 0) for v in (0.0, 1.0)), "mine")
    assert found.images.dtype == torch.float32
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got -1 to 2; remove normalisation"):
        data.from_dataset(Pairs((torch.full((3, 2, 2), v), 0) for v in (-1.0, 2.0)), "mine")
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got nan"):
        data.from_dataset(Pairs([(torch.full((3, 2, 2), float("nan")), 0)]), "mine")


class Named(Pairs):
    classes = ("a", "a")


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Pairs([("a path", 0)]), "must be a dataset of .* pairs: .*; got an image of type str"),
        (Pairs([(PIXELS[0], 0), (PIXELS[1][:4], 0)]), "images of one size"),
        (Pairs([(PIXELS[0], 0.5)]), "integer labels; 'float' object cannot be interpreted as an integer"),
        (Pairs([(PIXELS[0], torch.tensor([1, 2]))]), "integer labels; only integer tensors of a single element"),
        (Pairs([(PIXELS[0].astype(np.int64), 0)]), "images must be uint8 or float"),
        (Pairs([(torch.zeros(1, 2, 2), 0, 1)]), r"must be a dataset of \(image, label\) pairs"),
        (Named([(torch.zeros(1, 2, 2), 0)]), r"classes must have different names, got \('a', 'a'\)"),
    ],
)
def test_what_is_no_dataset_of_images_is_refused(dataset, message):
    with pytest.raises(ValueError, match=f"^mine.* {message}"):
        data.from_dataset(dataset, "mine")


def toy_set(labels=(0, 0, 1, 2, 1, 0, 2, 2)):
    count = len(labels)
    images = torch.randint(256, (count, 1, 3, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ImageSet(images, torch.tensor(labels), ("a", "b", "c"), "toy/test")


def index_in(images, wanted):
    """Which of `images` each of `wanted` equals, exactly."""
    equal = (wanted[:, None] == images[None]).flatten(2).all(dim=2)
    assert bool((equal.sum(dim=1) == 1).all())
    return equal.long().argmax(dim=1)


def test_paths_are_lines_between_images_of_different_classes_with_the_label_of_the_nearer_end():
    """In the middle the label is that of the first image, at lambda = 1."""
    toy = toy_set()
    derived = interpolate(toy, pairs=50, lambdas=5)
    paths, labels = derived.images.reshape(50, 5, 1, 3, 3), derived.labels.reshape(50, 5)
    second, first = index_in(to_float(toy.images), paths[:, 0]), index_in(to_float(toy.images), paths[:, -1])
    assert bool((toy.labels[first] != toy.labels[second]).all())
    assert torch.equal(labels, torch.stack([toy.labels[second]] * 2 + [toy.labels[first]] * 3, dim=1))
    for j in range(5):
        lam = j / 4
        torch.testing.assert_close(paths[:, j], lam * paths[:, -1] + (1 - lam) * paths[:, 0], rtol=0, atol=1e-6)


def test_pairs_are_uniform_over_those_with_different_labels():
    """Labels 0, 0, 1: of the four ordered pairs with different labels each is drawn a quarter of the time."""
    toy = toy_set((0, 0, 1))
    paths = interpolate(toy, pairs=4000, lambdas=2).images.reshape(4000, 2, 1, 3, 3)
    second, first = index_in(to_float(toy.images), paths[:, 0]), index_in(to_float(toy.images), paths[:, 1])
    counts = (3 * first + second).bincount(minlength=9)
    assert counts.nonzero().flatten().tolist() == [2, 5, 6, 7]
    assert counts[counts > 0].min() > 900


def test_the_same_source_gives_the_same_paths_and_another_source_others():
    torch.manual_seed(0)
    first = interpolate(toy_set(), pairs=10)
    torch.manual_seed(1)
    assert torch.equal(first.images, interpolate(toy_set(), pairs=10).images)
    changed = toy_set()
    changed.images[0, 0, 0, 0] ^= 1
    assert not torch.equal(first.labels, interpolate(changed, pairs=10).labels)


def test_one_class_alone_has_no_paths():
    with pytest.raises(ValueError, match="path:toy/test needs at least two classes, toy/test holds one"):
        interpolate(toy_set((1, 1, 1)))


def test_a_path_set_is_loaded_by_name():
    derived = data.load("path:digits/test")
    assert derived.images.shape == (20_000, 1, 8, 8)
    assert derived.info == {"pairs": "1000", "lambdas": "20"}
    ends = derived.images.reshape(1000, 20, 1, 8, 8)[:, [0, -1]].flatten(0, 1)
    digits = {image.numpy().tobytes() for image in to_float(data.load("digits/test").images)}
    assert all(image.numpy().tobytes() in digits for image in ends)
