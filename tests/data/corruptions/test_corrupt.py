"""`corrupt`: what every corruption promises, and what is refused."""

import itertools

import pytest
import torch

from regmixup.data import corrupt
from regmixup.data.catalogue import BENCHMARK, EXTRA
from regmixup.data.corruptions import CORRUPTIONS
from regmixup.data.corruptions.constants import CONSTANTS, nearest_constants
from tests.data.corruptions.photographs import pieces, whole

ALL = (*BENCHMARK, *EXTRA)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
# Where the constants themselves do not grow: less saturation comes before more, and a large smooth map before a small
# rough one.
NOT_MONOTONE = ("elastic_transform", "saturate", "frost", "spatter")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def change(images, *args, **options):
    return (corrupt(images, *args, **options).double() - images.double()).abs().mean().item()


def test_the_registry_is_the_15_of_the_benchmark_and_4_more():
    assert tuple(CORRUPTIONS) == ALL
    assert (len(BENCHMARK), len(EXTRA)) == (15, 4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ALL)
def test_same_seed_same_pixels_and_the_images_stay(name, device):
    images = whole(32).to(device)
    before = images.clone()
    first, second = (corrupt(images, name, severity=3, generator=seeded()) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(images, before)
    assert (first.dtype, first.shape, first.device) == (torch.uint8, images.shape, images.device)
    assert first.is_contiguous()
    assert not torch.equal(first, images)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("side", [32, 224])
def test_a_cpu_generator_gives_the_same_corruption_on_the_gpu(name, side):
    cpu, gpu = (
        corrupt(whole(side).to(d), name, severity=3, generator=seeded()).cpu().double() for d in ("cpu", "cuda")
    )
    assert (cpu - gpu).abs().mean() < 0.1
    assert (cpu != gpu).double().mean() < 0.02


RANDOM = ("gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "snow", "frost", "fog",
          "elastic_transform", "spatter", "speckle_noise")  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_another_seed_and_another_place_in_the_batch_give_other_randomness(name):
    images = whole(32)[:1].repeat(2, 1, 1, 1)
    first, second = (corrupt(images, name, severity=3, generator=seeded(seed)) for seed in (0, 1))
    assert torch.equal(first, second) == (name not in RANDOM)
    assert torch.equal(first[0], first[1]) == (name not in RANDOM)


@pytest.mark.parametrize("name", ["gaussian_noise", "glass_blur"])
def test_without_a_generator_the_global_one_is_used(name):
    torch.manual_seed(3)
    first = corrupt(whole(32), name, severity=2)
    torch.manual_seed(3)
    assert torch.equal(corrupt(whole(32), name, severity=2), first)
    assert torch.equal(corrupt(whole(32), name, severity=2, generator=seeded(3)), first)


@pytest.mark.parametrize("name", ALL)
def test_grey_images_stay_grey_and_change_like_coloured_ones(name):
    grey = pieces(24).float().mean(dim=1, keepdim=True).byte()
    result = corrupt(grey, name, severity=3, generator=seeded())
    assert result.shape == grey.shape
    if name == "saturate":
        assert torch.equal(result, grey)
        return
    coloured = grey.expand(-1, 3, -1, -1)
    expected = change(coloured, name, severity=3, generator=seeded())
    assert change(grey, name, severity=3, generator=seeded()) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize(
    ("name", "height", "width"), [(name, *((21, 37), (45, 30), (33, 33))[i % 3]) for i, name in enumerate(ALL)]
)
def test_odd_and_oblong_images_and_a_batch_of_one(name, height, width):
    images = pieces(1, 64)[..., :height, :width]
    result = corrupt(images, name, severity=5, generator=seeded())
    assert result.shape == images.shape
    assert 0 < (result.double() - images.double()).abs().mean() < 130


@pytest.mark.parametrize("kind", ["cifar", "imagenet"])
@pytest.mark.parametrize("name", [name for name in ALL if name not in NOT_MONOTONE])
def test_a_higher_severity_changes_more(name, kind):
    images = pieces(40) if kind == "cifar" else pieces(4, 96)
    changes = [change(images, name, severity=s, generator=seeded(), constants=kind) for s in range(1, 6)]
    assert changes[4] > 1.3 * changes[0] > 0
    for low, high in itertools.pairwise(changes):
        assert high > 0.95 * low  # glass_blur's steps are not all steps up, in CIFAR-C either


def test_strided_and_empty_batches():
    images = whole(32)
    strided = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    for name in ALL:
        assert torch.equal(
            corrupt(strided, name, severity=2, generator=seeded()),
            corrupt(images, name, severity=2, generator=seeded()),
        )
        assert corrupt(images[:0], name, severity=2).shape == (0, 3, 32, 32)


@pytest.mark.parametrize(
    ("side", "kind"), [(8, "digits"), (20, "digits"), (21, "cifar"), (64, "cifar"), (128, "cifar"), (129, "imagenet")]
)
def test_the_constants_are_those_of_the_nearest_size(side, kind):
    assert nearest_constants(side, side + 50) == kind
    images = torch.full((1, 3, side, side), 100, dtype=torch.uint8)
    shift = CONSTANTS[kind]["brightness"][1][0]
    assert corrupt(images, "brightness", severity=2).unique().tolist() == [int(100 + shift * 255 + 1e-6)]


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (whole(32), {"name": "gausian_noise"}, "unknown corruption 'gausian_noise': did you mean 'gaussian_noise'"),
        (whole(32), {"severity": 0}, "severity must be 1, 2, 3, 4 or 5, got 0"),
        (whole(32), {"generator": 0}, "generator must be a torch.Generator or None, got 0"),
        (whole(32).float(), {}, r"images must be uint8 \(N, 3 or 1, H, W\), got torch.float32 \(2, 3, 32, 32\)"),
        (whole(32)[:, :2], {}, r"images must be uint8 \(N, 3 or 1, H, W\), got torch.uint8 \(2, 2, 32, 32\)"),
        (whole(32), {"constants": "imagnet"}, "unknown constants 'imagnet': did you mean 'imagenet'"),
        (whole(8), {"name": "glass_blur"}, "glass_blur has no constants for digits .*constants='auto'"),
    ],
)  # fmt: skip
def test_what_cannot_be_corrupted_is_refused(images, options, message):
    with pytest.raises(ValueError, match=message):
        corrupt(images, options.pop("name", "fog"), **{"severity": 1, **options})
