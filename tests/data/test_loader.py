"""The resident loader: an epoch is a permutation decided by (seed, epoch) alone; crop and flip of a whole batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.data.images import ImageSet
from regmixup.data.loader import ResidentLoader, crop_and_flip
from regmixup.mixing import in_box, sample_squares

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


@pytest.mark.parametrize(("batch_size", "sizes"), [(5, [5] * 4 + [3]), (100, [23]), (22, [22, 1])])
def test_every_image_appears_exactly_once_and_the_last_batch_is_kept(batch_size, sizes):
    """Zeros come in at the border, but the largest pixel of a filled image still tells which it is."""
    made = loader(batch_size=batch_size, padding=2, flip=True)
    batches = list(made.epoch(0))
    assert [len(batch.x) for batch in batches] == [len(batch.y) for batch in batches] == sizes
    assert len(made) == len(sizes)
    x, y = whole(batches)
    index = (x.amax(dim=(1, 2, 3)).long() - 1) // 10
    assert sorted(index.tolist()) == list(range(COUNT))
    assert torch.equal(index % 5, y)


def test_an_epoch_depends_on_seed_and_epoch_alone_not_on_the_batch_size():
    made = loader(textured(), padding=2, flip=True)
    list(made.epoch(0))
    torch.manual_seed(99)
    later, _ = whole(made.epoch(4))
    fresh, _ = whole(loader(textured(), padding=2, flip=True, batch_size=3).epoch(4))
    assert torch.equal(later, fresh)


def test_augmentation_is_new_in_every_epoch_and_for_every_seed():
    """All images are the same, so that what is seen shows the crops and flips alone, whatever the order."""
    same = ImageSet(textured().images[:1].repeat(COUNT, 1, 1, 1), torch.arange(COUNT) % 5, tuple("abcde"), "toy/train")
    seen = [
        whole(loader(same, seed=seed, padding=2, flip=True).epoch(epoch))[0] for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    assert len({image.contiguous().numpy().tobytes() for image in seen[0]}) > COUNT / 2


def one_by_one(images, offset, flip, padding):
    """Pad each image with zeros, cut out a window, mirror it if drawn."""
    _, _, height, width = images.shape
    results = []
    for image, (top, left), mirrored in zip(images.numpy(), offset.tolist(), flip.tolist(), strict=True):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        crop = padded[:, top : top + height, left : left + width]
        results.append(crop[:, :, ::-1] if mirrored else crop)
    return torch.from_numpy(np.stack(results))


def random_images(count, channels, height, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)


def crops_of(images, **settings):
    """Return the offsets and flips that a loader picks for an epoch of one batch."""
    dataset = ImageSet(images, torch.zeros(len(images), dtype=torch.int64), ("a",), "toy/train")
    (picked,) = loader(dataset, batch_size=len(images), **settings).picks(0)
    return picked.offset, picked.flip


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
    crops = crops_of(images, padding=padding, flip=flip, seed=seed)
    result = crop_and_flip(images, *crops, padding)
    assert result.dtype == images.dtype
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(result, one_by_one(images, *crops, padding))


@pytest.mark.parametrize("padding", [0, 4])
def test_offsets_are_uniform_over_all_windows_and_flips_fair_coins_or_never(padding):
    images = random_images(5000, 1, 1, 1)
    offset, flip = crops_of(images, padding=padding, flip=True, seed=1)
    windows = 2 * padding + 1
    together = (offset[:, 0] * windows + offset[:, 1]).bincount(minlength=windows**2)
    assert len(together) == windows**2
    assert together.min() > 0.5 * 5000 / windows**2  # rows and columns are drawn apart
    assert 0.47 <= flip.double().mean() <= 0.53
    assert not crops_of(images, padding=padding, flip=False, seed=1)[1].any()


def test_ranks_share_the_batches_of_one_process_augmented_alike_from_any_batch():
    world = 3
    settings = {"padding": 2, "flip": True, "cutout": 3, "fill": (0.5,)}
    together = list(loader(textured(), **settings).epoch(1))
    parts = [list(loader(textured(), **settings).shard(rank, world).epoch(1, start=2)) for rank in range(world)]
    for number, batch in enumerate(together[2:]):
        for rank in range(world):
            assert torch.equal(parts[rank][number].x, batch.x[rank::world])
            assert torch.equal(parts[rank][number].y, batch.y[rank::world])


class TestCutout:
    @pytest.mark.parametrize("side", [2, 4, 5])
    def test_a_square_is_masked_as_in_the_released_code(self, side):
        """Cutout of DeVries and Taylor with one hole; a side of 5 is one of 4 there, too."""
        images = textured().images
        boxes = sample_squares(side, COUNT, (6, 6), torch.Generator().manual_seed(0))
        ours = torch.where(in_box(boxes, images), torch.tensor(7, dtype=torch.uint8), images)
        centre = (6 * torch.rand(COUNT, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).long()
        for image, (y, x), found in zip(images, centre.tolist(), ours, strict=True):
            mask = np.ones((6, 6), bool)
            first = [np.clip(place - side // 2, 0, 6) for place in (y, x)]
            last = [np.clip(place + side // 2, 0, 6) for place in (y, x)]
            mask[first[0] : last[0], first[1] : last[1]] = False
            assert torch.equal(found, torch.where(torch.from_numpy(mask), image, 7))

    def test_it_comes_last_from_a_stream_of_its_own(self):
        """So crops are those of before, and another epoch has other squares."""
        options = {"padding": 2, "flip": True, "fill": (0.5,)}
        plain = whole(loader(textured(), **options).epoch(1))[0]
        cut = whole(loader(textured(), **options, cutout=4).epoch(1))[0]
        assert ((cut == plain) | (cut == 128)).all()
        assert (cut != plain).flatten(1).any(1).sum() > COUNT / 2
        alone = [whole(loader(textured(), cutout=4, fill=(0.5,)).epoch(epoch)) for epoch in (1, 1, 2)]
        assert torch.equal(alone[0][0], alone[1][0])
        holes = [(x == 128).flatten(1)[y.argsort(stable=True)] for x, y in alone]
        assert not torch.equal(holes[0], holes[2])
        assert (holes[0].sum(1) >= 4).all()
