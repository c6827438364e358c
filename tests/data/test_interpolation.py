"""`path:NAME`: interpolated pairs."""

import pytest
import torch

from regmixup import data
from regmixup.data.images import ImageSet, interpolate


def source(labels=(0, 0, 1, 2, 1, 0, 2, 2)):
    count = len(labels)
    images = torch.randint(256, (count, 1, 3, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ImageSet(images, torch.tensor(labels), ("a", "b", "c"), "toy/test")


def pixels(dataset):
    return dataset.images.float() / 255


def index_in(images, wanted):
    """Which of `images` each of `wanted` equals, exactly."""
    equal = (wanted[:, None] == images[None]).flatten(2).all(dim=2)
    assert bool((equal.sum(dim=1) == 1).all())
    return equal.long().argmax(dim=1)


def test_paths_are_lines_between_images_of_different_classes_with_the_label_of_the_nearer_end():
    """In the middle the label is that of the first image, at lambda = 1."""
    toy = source()
    derived = interpolate(toy, pairs=50, lambdas=5)
    paths, labels = derived.images.reshape(50, 5, 1, 3, 3), derived.labels.reshape(50, 5)
    second, first = index_in(pixels(toy), paths[:, 0]), index_in(pixels(toy), paths[:, -1])
    assert bool((toy.labels[first] != toy.labels[second]).all())
    assert torch.equal(labels, torch.stack([toy.labels[second]] * 2 + [toy.labels[first]] * 3, dim=1))
    for j in range(5):
        lam = j / 4
        torch.testing.assert_close(paths[:, j], lam * paths[:, -1] + (1 - lam) * paths[:, 0], rtol=0, atol=1e-6)


def test_pairs_are_uniform_over_those_with_different_labels():
    """Labels 0, 0, 1: of the four ordered pairs with different labels each is drawn a quarter of the time."""
    toy = source((0, 0, 1))
    paths = interpolate(toy, pairs=4000, lambdas=2).images.reshape(4000, 2, 1, 3, 3)
    second, first = index_in(pixels(toy), paths[:, 0]), index_in(pixels(toy), paths[:, 1])
    counts = (3 * first + second).bincount(minlength=9)
    assert counts.nonzero().flatten().tolist() == [2, 5, 6, 7]
    assert counts[counts > 0].min() > 900


def test_the_same_source_gives_the_same_paths_and_another_source_others():
    torch.manual_seed(0)
    first = interpolate(source(), pairs=10)
    torch.manual_seed(1)
    assert torch.equal(first.images, interpolate(source(), pairs=10).images)
    changed = source()
    changed.images[0, 0, 0, 0] ^= 1
    assert not torch.equal(first.labels, interpolate(changed, pairs=10).labels)


def test_one_class_alone_has_no_paths():
    with pytest.raises(ValueError, match="path:toy/test needs at least two classes, toy/test holds one"):
        interpolate(source((1, 1, 1)))


def test_a_path_set_is_loaded_by_name():
    derived = data.load("path:digits/test")
    assert derived.images.shape == (20_000, 1, 8, 8)
    assert derived.info == {"pairs": "1000", "lambdas": "20"}
    ends = derived.images.reshape(1000, 20, 1, 8, 8)[:, [0, -1]].flatten(0, 1)
    digits = {image.numpy().tobytes() for image in pixels(data.load("digits/test"))}
    assert all(image.numpy().tobytes() in digits for image in ends)
