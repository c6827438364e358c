"""Crop and flip of a whole batch against one image at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.data.loader import AugmentDraw, crop_and_flip, draw_augmentation


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
