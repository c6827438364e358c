"""The streaming loader: deterministic, resumable, sharded, and the same images as decoding by hand."""

import gc
import multiprocessing
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.functional import pil_to_tensor

from regmixup.data.decode import EvalTransform, open_rgb
from regmixup.data.splits import seed_for
from regmixup.data.streaming import StreamingLoader

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Eleven PNG files of different sizes, and labels 0..10."""
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    paths = []
    for index in range(11):
        pixels = rng.integers(0, 256, (20 + index, 30 - index, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
        paths.append(str(folder / f"{index}.png"))
    return paths, torch.arange(11)


def loader(files, *, workers=0, transform=None, **changes):
    """With random crops, unless there is a transform."""
    transform = transform or v2.RandomResizedCrop(8)
    settings = {"batch_size": 4, "seed": 0, "device": CPU, "transform": transform, "shape": (3, 8, 8)}
    return StreamingLoader(*files, workers=workers, **{**settings, "epochs": 10, **changes})


def gather(batches):
    batches = list(batches)
    return torch.cat([b.x for b in batches]), torch.cat([b.y for b in batches])


def test_every_image_once_an_epoch_and_the_partial_batch_kept(files):
    batches = list(loader(files).epoch(0))
    assert [len(b.x) for b in batches] == [4, 4, 3]
    assert sorted(torch.cat([b.y for b in batches]).tolist()) == list(range(11))
    assert batches[0].x.dtype == torch.uint8
    assert batches[0].x.shape == (4, 3, 8, 8)


def test_the_processes_are_kept_between_epochs_and_change_nothing(files):
    helped, alone = loader(files, workers=2), loader(files)
    pids = []
    for epoch in (1, 2, 3):
        for a, b in zip(helped.epoch(epoch, start=epoch % 2), alone.epoch(epoch, start=epoch % 2), strict=True):
            assert torch.equal(a.x, b.x)
            assert torch.equal(a.y, b.y)
            pids.append({process.pid for process in multiprocessing.active_children()})
    kept, new = pids[:5], pids[5:]  # epoch 3 does not start where epoch 2 ended
    assert len(pids[0]) == 2
    assert all(running == pids[0] for running in kept)
    assert all(not running & pids[0] for running in new)
    helped.close()
    assert not multiprocessing.active_children()


def test_the_next_epoch_is_decoded_ahead_and_none_beyond_the_last(files, tmp_path):
    """Otherwise a set of a few batches keeps few of the processes busy, and makes the GPU wait in every epoch."""
    decoded = tmp_path / "decoded"

    def counted(image):
        with decoded.open("ab", buffering=0) as file:
            file.write(b".")
        return image.resize((8, 8))

    read = loader(files, workers=1, transform=counted, epochs=2)
    list(read.epoch(0))
    deadline = time.monotonic() + 300
    while decoded.stat().st_size < 12 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert decoded.stat().st_size > 11  # images of an epoch
    list(read.epoch(1))
    assert decoded.stat().st_size == 22
    assert not multiprocessing.active_children()


def test_the_processes_end_with_the_loader_that_nobody_closed(files):
    """At once: left to the garbage collector, they would end seconds later, and hold up whatever runs then."""
    read = loader(files, workers=1)
    list(read.epoch(0))
    assert multiprocessing.active_children()
    gc.disable()
    try:
        del read
        assert not multiprocessing.active_children()
    finally:
        gc.enable()


def test_two_epochs_at_once_and_one_left_early_are_those_of_a_single_process(files):
    helped, alone = loader(files, workers=1), loader(files)
    left = helped.epoch(2)
    next(left)
    pairs = zip(helped.epoch(0), helped.epoch(1), alone.epoch(0), alone.epoch(1), strict=True)
    assert all(torch.equal(a.x, c.x) and torch.equal(b.x, d.x) for a, b, c, d in pairs)
    left.close()
    assert torch.equal(gather(helped.epoch(2))[0], gather(alone.epoch(2))[0])


def test_the_global_generator_is_left_alone(files):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    list(loader(files).epoch(0))
    assert torch.equal(torch.rand(2), expected)


def test_ranks_share_a_batch_without_overlap(files):
    whole = [set(b.y.tolist()) for b in loader(files).epoch(0)]
    shards = [[set(b.y.tolist()) for b in loader(files).shard(r, 2).epoch(0)] for r in range(2)]
    for batch, first, second in zip(whole, *shards, strict=True):
        assert first | second == batch
        assert not first & second


def test_pixels_are_those_of_the_files(files):
    transform = EvalTransform(size=16, resize=18).build()
    x, y = gather(loader(files, transform=transform).epoch(0))
    assert sorted(y.tolist()) == list(range(11))
    expected = torch.stack([pil_to_tensor(transform(open_rgb(files[0][label]))) for label in y])
    assert torch.equal(x, expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 0}, "size must be an integer >= 1, got 0"),
        ({"resize": 256.0}, "resize must be an integer >= 1, got 256.0"),
        ({"interpolation": "cubic"}, "unknown interpolation 'cubic': did you mean 'bicubic'"),
    ],
)
def test_a_transform_that_no_image_could_pass_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        EvalTransform(**fields)


def test_a_transform_draws_from_the_generator_of_its_image_and_may_return_a_tensor(files):
    def transform(image):
        return torch.randint(256, (3, 8, 8), dtype=torch.uint8)

    x, y = gather(loader(files, transform=transform, workers=1).epoch(2))
    for image, index in zip(x, y.tolist(), strict=True):
        with torch.random.fork_rng():
            torch.manual_seed(seed_for(0, "transform", 2, index))
            assert torch.equal(image, transform(None))


def test_a_rank_that_a_small_last_batch_leaves_empty_gets_a_batch_of_the_same_shape():
    images = torch.zeros(11, 1, 6, 7, dtype=torch.uint8)
    settings = {"transform": v2.Identity(), "shape": (1, 6, 7), "batch_size": 10}
    *_, last = loader((images, torch.arange(11)), **settings).shard(1, 2).epoch(0)
    assert last.x.shape == (0, 1, 6, 7)
