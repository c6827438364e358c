"""The resident loader: an epoch is a permutation of the dataset, decided by (seed, epoch) alone."""

import pytest
import torch

from regmixup.data.images import ImageSet
from regmixup.data.loader import ResidentLoader

COUNT = 23


def numbered():
    """Image i is filled with the value 10 i + 1 (never zero), its label is i mod 5."""
    values = (10 * torch.arange(COUNT) + 1).to(torch.uint8)
    images = values.reshape(-1, 1, 1, 1).repeat(1, 2, 4, 4)
    return ImageSet(images, torch.arange(COUNT) % 5, tuple("abcde"), "toy/train")


def textured():
    images = torch.randint(256, (COUNT, 1, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ImageSet(images, torch.arange(COUNT) % 5, tuple("abcde"), "toy/train")


def loader(dataset=None, **settings):
    settings = {"batch_size": 5, "seed": 0, "device": torch.device("cpu"), "padding": 0, "flip": False, **settings}
    return ResidentLoader(dataset or numbered(), **settings)


def whole(batches):
    batches = list(batches)
    return torch.cat([b.x for b in batches]), torch.cat([b.y for b in batches])


@pytest.mark.parametrize(
    ("batch_size", "sizes"), [(5, [5] * 4 + [3]), (23, [23]), (100, [23]), (1, [1] * 23), (22, [22, 1])]
)
def test_every_image_appears_exactly_once_and_the_last_batch_is_kept(batch_size, sizes):
    made = loader(batch_size=batch_size)
    batches = list(made.epoch(0))
    assert [len(batch.x) for batch in batches] == [len(batch.y) for batch in batches] == sizes
    assert len(made) == len(sizes)
    x, _ = whole(batches)
    assert sorted(x[:, 0, 0, 0].tolist()) == [10 * i + 1 for i in range(COUNT)]


@pytest.mark.parametrize(("padding", "flip"), [(0, False), (0, True)])
def test_labels_follow_their_images(padding, flip):
    x, y = whole(loader(padding=padding, flip=flip).epoch(3))
    index = (x[:, 0, 0, 0].long() - 1) // 10
    assert torch.equal(index % 5, y)


def test_labels_follow_their_images_under_cropping():
    # Zeros come in at the border, but the largest pixel of a filled image still tells which it is.
    x, y = whole(loader(padding=2, flip=True).epoch(3))
    index = (x.amax(dim=(1, 2, 3)).long() - 1) // 10
    assert torch.equal(index % 5, y)


def test_an_epoch_depends_on_seed_and_epoch_alone():
    made = loader(textured(), padding=2, flip=True)
    list(made.epoch(0))
    torch.manual_seed(99)
    later, _ = whole(made.epoch(4))
    fresh, _ = whole(loader(textured(), padding=2, flip=True).epoch(4))
    assert torch.equal(later, fresh)


def test_the_batch_size_does_not_change_what_is_seen():
    small, _ = whole(loader(textured(), padding=2, flip=True, batch_size=3).epoch(1))
    large, _ = whole(loader(textured(), padding=2, flip=True, batch_size=23).epoch(1))
    assert torch.equal(small, large)


def test_epochs_and_seeds_differ_in_order():
    orders = [whole(loader(seed=seed).epoch(epoch))[0][:, 0, 0, 0].tolist() for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_order_does_not_depend_on_augmentation():
    plain, augmented = (whole(loader(textured(), padding=p, flip=f).epoch(2))[1] for p, f in ((0, False), (2, True)))
    assert torch.equal(plain, augmented)


def test_without_padding_and_flip_images_are_untouched():
    dataset = textured()
    x, _ = whole(loader(dataset).epoch(0))
    originals = {image.numpy().tobytes() for image in dataset.images}
    assert {image.contiguous().numpy().tobytes() for image in x} == originals


def test_with_flip_alone_every_image_is_itself_or_its_mirror_and_both_occur():
    dataset = textured()
    order = {image.numpy().tobytes(): "plain" for image in dataset.images}
    order |= {image.flip(-1).contiguous().numpy().tobytes(): "mirrored" for image in dataset.images}
    x, _ = whole(loader(dataset, flip=True).epoch(0))
    assert {order[image.contiguous().numpy().tobytes()] for image in x} == {"plain", "mirrored"}


def test_augmentation_is_new_in_every_epoch_and_for_every_seed():
    """All images are the same, so that what is seen shows the crops and flips alone, whatever the order."""
    same = ImageSet(textured().images[:1].repeat(COUNT, 1, 1, 1), torch.arange(COUNT) % 5, tuple("abcde"), "toy/train")
    seen = [
        whole(loader(same, seed=seed, padding=2, flip=True).epoch(epoch))[0] for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    assert len({image.contiguous().numpy().tobytes() for image in seen[0]}) > COUNT / 2


def test_images_stay_uint8_and_the_dataset_unchanged():
    dataset = textured()
    before = dataset.images.clone()
    for batch in loader(dataset, padding=1, flip=True).epoch(0):
        assert batch.x.dtype == torch.uint8
        batch.x.zero_()
    assert torch.equal(dataset.images, before)
