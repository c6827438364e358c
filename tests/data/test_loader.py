"""The resident loader: an epoch is a permutation decided by (seed, epoch) alone; crop and flip of a whole batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.data.images import ImageSet
from regmixup.data.loader import AugmentDraw, ResidentLoader, crop_and_flip, draw_augmentation

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


def one_by_one(images, draw, padding):
    """Pad each image with zeros, cut out a window, mirror it if drawn."""
    _, _, height, width = images.shape
    results = []
    for image, (top, left), flip in zip(images.numpy(), draw.offset.tolist(), draw.flip.tolist(), strict=True):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        crop = padded[:, top : top + height, left : left + width]
        results.append(crop[:, :, ::-1] if flip else crop)
    return torch.from_numpy(np.stack(results))


def random_images(count, channels, height, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(1, 6),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    padding=st.integers(0, 4),
    flip=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_batch_equals_one_image_at_a_time(count, channels, height, width, padding, flip, seed):
    images = random_images(count, channels, height, width, seed)
    draw = draw_augmentation(count, padding=padding, flip=flip, generator=torch.Generator().manual_seed(seed))
    result = crop_and_flip(images, draw, padding)
    assert result.dtype == images.dtype
    assert torch.equal(result, one_by_one(images, draw, padding))


def test_the_centre_crop_is_the_image_and_the_flip_is_its_mirror():
    images = random_images(2, 3, 5, 6)
    centre = AugmentDraw(torch.full((2, 2), 2), torch.tensor([False, True]))
    result = crop_and_flip(images, centre, padding=2)
    assert torch.equal(result[0], images[0])
    assert torch.equal(result[1], images[1].flip(-1))


def test_the_offset_is_first_the_row_and_then_the_column():
    image = torch.arange(1, 10, dtype=torch.uint8).reshape(1, 1, 3, 3)
    shifted = crop_and_flip(image, AugmentDraw(torch.tensor([[2, 1]]), torch.tensor([False])), padding=1)
    assert shifted[0, 0].tolist() == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]


def test_the_images_are_not_changed():
    images = random_images(4, 1, 5, 5)
    before = images.clone()
    draw = draw_augmentation(4, padding=2, flip=True, generator=torch.Generator().manual_seed(0))
    crop_and_flip(images, draw, 2).zero_()
    assert torch.equal(images, before)


def test_the_result_is_in_channels_last_order():
    draw = draw_augmentation(4, padding=1, flip=True, generator=torch.Generator().manual_seed(0))
    result = crop_and_flip(random_images(4, 3, 5, 6), draw, 1)
    assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_offsets_are_uniform_over_all_windows(padding):
    draw = draw_augmentation(5000, padding=padding, flip=True, generator=torch.Generator().manual_seed(1))
    windows = 2 * padding + 1
    for column in draw.offset.T:
        counts = column.bincount(minlength=windows)
        assert len(counts) == windows
        assert counts.min() > 0.8 * 5000 / windows
    together = (draw.offset[:, 0] * windows + draw.offset[:, 1]).bincount(minlength=windows**2)
    assert together.min() > 0  # rows and columns are drawn apart


def test_flips_are_fair_coins_or_never():
    for flip, low, high in ((True, 0.47, 0.53), (False, 0.0, 0.0)):
        draw = draw_augmentation(5000, padding=1, flip=flip, generator=torch.Generator().manual_seed(2))
        assert draw.flip.dtype == torch.bool
        assert low <= draw.flip.double().mean() <= high


def test_crops_are_the_same_with_and_without_flips():
    with_flips, without = (
        draw_augmentation(50, padding=2, flip=flip, generator=torch.Generator().manual_seed(3))
        for flip in (True, False)
    )
    assert torch.equal(with_flips.offset, without.offset)


def test_a_draw_can_be_indexed_like_its_images():
    draw = draw_augmentation(10, padding=2, flip=True, generator=torch.Generator().manual_seed(4))
    part = draw[3:6]
    assert torch.equal(part.offset, draw.offset[3:6])
    assert torch.equal(part.flip, draw.flip[3:6])
