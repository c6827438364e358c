"""The fast path computes what the plain one does, resumes exactly, and never waits for the device. Needs a GPU."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regmixup as rm
from regmixup.data.images import ImageSet
from regmixup.data.loader import ResidentLoader
from regmixup.methods import METHODS
from regmixup.training.config import resolve
from regmixup.training.distributed import Ranks
from regmixup.training.engine import settings
from regmixup.training.loop import Training
from regmixup.training.reporting import means
from regmixup.training.run import Run
from tests.training.short import FINE_TUNING, tensors_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICE = torch.device("cuda")
PLAIN, GRAPHED = rm.Engine(compile="off", graphs="off"), rm.Engine(compile="off", graphs="on")
FAST = rm.Engine(compile="on", graphs="on")
SHARP = {"sharpness": "friendly", "average": "swa", "average_from": 0.4}
SELECTED = {"select": "val-nll", "ema": 0.9}


def plain_and_graphed(config, folder):
    """A run with plain steps, then the same with captured ones, both deterministic."""
    for name, engine in (("plain", PLAIN), ("graphed", GRAPHED)):
        yield rm.train(config, folder / name, engine=replace(engine, deterministic=True), workers=0)


def assert_close(found, expected):
    """Every tensor of two runs, but for the order of sums."""
    for name, tensor in expected.items():
        assert torch.allclose(tensor, found[name], rtol=1e-4, atol=1e-5), name


def synthetic(count):
    """Images that can be learned: each class has a colour."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 10
    colours = torch.randint(0, 256, (10, 3, 1, 1), generator=generator)
    noise = torch.randint(-60, 60, (count, 3, 32, 32), generator=generator)
    return ImageSet((colours[labels] + noise).clamp(0, 255).byte(), labels, tuple("abcdefghij"), "synthetic/train")


def losses(config, dataset, engine, steps):
    """The loss of each of the first steps."""
    found, config = [], resolve(config, DEVICE)
    with settings(DEVICE, engine, config.precision):
        training = Training(Run(Path(), config), dataset, DEVICE, Ranks(), engine, workers=0).resume()
        training.model.train()
        for step, picked in enumerate(training.loaders[0].picks(0)):
            if step == steps:
                break
            count = len(picked.index)
            training.take_step(training.draw_shards(step, [picked], count))
            found.append(means(training.tally.totals())["loss"])
            training.tally.restore({})
    return torch.tensor(found)


@pytest.mark.parametrize(
    ("method", "changes"),
    [("dnn", {}), ("regmixup", {}), ("regmixup", {"objective": rm.RegMixup(passes="separate-clean")})],
    ids=["dnn", "regmixup", "separate-clean"],
)
def test_compiled_and_captured_steps_lose_as_plain_ones_do(method, changes):
    """Same draws, no dropout, 50 steps that bring the loss down.

    Rounding to bfloat16 changes the gradient of a ResNet-18 by a third, so two ways to compute it drift apart. How
    far they may is how far the plain one drifts from float32.
    """
    config = rm.configure("cifar10-resnet50", method, network="resnet18", dropout=0.0, lr=0.002, warmup_epochs=0.0)
    config = replace(config, **changes)
    dataset = synthetic(50 * 128)
    exact = losses(replace(config, precision="float32"), dataset, PLAIN, 50)
    plain, fast = (losses(config, dataset, engine, 50) for engine in (PLAIN, FAST))
    assert plain[-5:].mean() < 0.7 * plain[:5].mean()
    assert abs(fast[0] - plain[0]) < 0.005
    noise = (plain - exact).abs()
    assert (fast - exact).abs().mean() < 1.5 * noise.mean() + 0.002
    assert (fast - plain).abs().mean() < 2 * noise.mean() + 0.002
    assert (fast - plain).mean().abs() < noise.mean() + 0.002


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("deep-ensemble", "kfac-llla")])
def test_a_captured_step_is_the_plain_one_for_every_method_partial_batch_included(tmp_path, method):
    config = rm.configure("digits", method, epochs=2, precision="float32", dropout=0.0, batch_size=60)
    plain, graphed = (run.model(device="cpu").state_dict() for run in plain_and_graphed(config, tmp_path))
    assert_close(graphed, plain)


def test_an_earlier_runs_graph_among_the_garbage_does_not_end_a_capture(tmp_path, monkeypatch):
    """Destroying a graph is forbidden while another one is captured, and a study's runs follow each other."""
    earlier = [torch.cuda.CUDAGraph()]
    with torch.cuda.graph(earlier[0]):
        torch.ones(3, device=DEVICE).add_(1)
    begin, threshold = torch.cuda.CUDAGraph.capture_begin, gc.get_threshold()

    def begin_beside_garbage(graph, *args, **options):
        begin(graph, *args, **options)
        if earlier:
            cycle = {"graph": earlier.pop()}
            cycle["itself"] = cycle
        gc.set_threshold(1)  # the search for cycles runs at nearly every allocation from here on

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", begin_beside_garbage)
    try:
        rm.train(rm.configure("digits", "regmixup", epochs=1, batch_size=60), tmp_path, engine=GRAPHED)
    finally:
        gc.set_threshold(*threshold)
    assert not earlier


@pytest.mark.parametrize(
    "changes", [{}, {"freeze": 1, **FINE_TUNING}, SELECTED], ids=["sgd", "fine-tuning", "selected"]
)
@pytest.mark.parametrize("engine", [PLAIN, GRAPHED])
def test_resuming_within_an_epoch_is_bit_identical_when_deterministic(tmp_path, engine, changes):
    engine = replace(engine, deterministic=True, checkpoint_minutes=0.0)
    config = rm.configure("digits", "regmixup", epochs=3, dropout=0.2, batch_size=40, **changes)
    whole = rm.train(config, tmp_path / "whole", engine=engine).model(device="cpu").state_dict()

    def stop(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rm.train(config, tmp_path / "cut", engine=engine, on_step=stop)
    resumed = rm.train(config, tmp_path / "cut", engine=engine)
    assert ("selected" in resumed.provenance()) == ("select" in changes)
    resumed = resumed.model(device="cpu").state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize(
    "changes", [SELECTED, {"rand_augment": 2, "select": "val-accuracy"}], ids=["device", "workers"]
)
def test_a_captured_step_is_the_plain_one_with_augmentation_and_selection(tmp_path, changes):
    """Boxes erased on the device, and images that RandAugment has changed on the host; the epoch selected, too."""
    config = rm.configure("digits", "regmixup", epochs=3, precision="float32", dropout=0.0, batch_size=60, **changes)
    run, captured = plain_and_graphed(config, tmp_path)
    plain, graphed = tensors_of(run, ""), tensors_of(captured, "")
    assert int(plain["best.selected_epoch"]) == int(graphed["best.selected_epoch"])
    assert_close(graphed, plain)
    model, images = captured.model(), rm.data.load("digits/val")
    with torch.no_grad():
        logits = model(images.images.cuda()).cpu()
    expected = {"val-nll": torch.nn.functional.cross_entropy(logits, images.labels),
                "val-accuracy": (logits.argmax(1) == images.labels).float().mean()}[config.select]  # fmt: skip
    assert captured.provenance()["selected"]["value"] == pytest.approx(expected.item(), abs=1e-3)


def test_compiled_augmentation_is_the_plain_one():
    """Crops, flips and Cutout of uint8 images: bit for bit."""
    images = synthetic(256)
    options = {"padding": 4, "flip": True, "cutout": 8, "fill": (0.5, 0.4, 0.3)}
    loader = ResidentLoader(images, batch_size=128, seed=0, device=DEVICE, **options)
    compiled = torch.compile(loader.load)
    for picked in loader.picks(0):
        plain = loader.load(picked)
        assert torch.equal(compiled(picked).x, plain.x)
        assert (plain.x != images.images.to(DEVICE)[picked.index]).any()


@pytest.mark.parametrize(
    ("changes", "prefix"), [(FINE_TUNING, "ema."), (SHARP, "swa.")], ids=["fine-tuning", "sharpness"]
)
def test_captured_fine_tuning_is_the_plain_one_frozen_and_not(tmp_path, changes, prefix):
    config = rm.configure("digits", "regmixup", epochs=3, precision="float32", dropout=0.0, batch_size=60, freeze=1)
    config = replace(config, **changes)
    plain, graphed = (tensors_of(run, "") for run in plain_and_graphed(config, tmp_path))
    assert any(name.startswith(prefix) for name in plain)
    assert_close(graphed, plain)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("engine", [PLAIN, GRAPHED])
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("regmixup", {}),
        ("regmixup", FINE_TUNING),
        ("regmixup", {"dropout": 0.0, **SHARP}),
        ("regmixup", {"cutout": 4}),
        ("regmixup+cutmix", {}),
        ("augmix", {}),
        ("pixmix", {"rotation": 0.5}),
        ("duq", {}),
    ],
    ids=["regmixup", "fine-tuning", "sharpness", "cutout", "regmixup+cutmix", "augmix", "pixmix", "duq"],
)
def test_no_step_waits_for_the_device(engine, method, changes):
    config = resolve(rm.configure("digits", method, batch_size=64, **changes), DEVICE)
    with settings(DEVICE, engine, config.precision):
        dataset = rm.data.load("digits/train")
        training = Training(Run(Path(), config), dataset, DEVICE, Ranks(), engine, workers=0).resume()
        training.model.train()
        picks = list(training.loaders[0].picks(0))[:3]
        draws = range(6)
        for step in draws:  # both branches of an Alternate are captured
            training.take_step(training.draw_shards(step, [picks[0]], 64))
        torch.cuda.set_sync_debug_mode("error")
        try:
            for step in draws:
                training.take_step(training.draw_shards(step, [picks[1]], 64))
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_dropout_differs_between_replays_and_repeats_with_the_seed():
    config = rm.configure("digits", "dnn", dropout=0.5, lr=1e-9, batch_size=64, crop_padding=0)
    dataset = rm.data.load("digits/train")
    first, second = (losses(config, dataset, GRAPHED, 6) for _ in range(2))
    assert torch.equal(first, second)
    assert len(set(first.tolist())) == 6


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_bad_captured_step_stops_training(tmp_path, optimizer):
    config = rm.configure("digits", "dnn", epochs=2, lr=1e30, precision="float32", optimizer=optimizer)
    with pytest.raises(RuntimeError, match="infinite or NaN"):
        rm.train(config, tmp_path, engine=GRAPHED)


@pytest.mark.parametrize(("precision", "error"), [("float32", (0, 2e-6)), ("tf32", (5e-5, 5e-3))])
def test_float32_is_not_rounded_and_tf32_is(precision, error):
    """Relative to the same convolution and product in float64."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 64, 16, 16, generator=generator).cuda()
    kernel = torch.randn(64, 64, 3, 3, generator=generator).cuda()
    with settings(DEVICE, PLAIN, precision):
        found = torch.conv2d(x, kernel), x[0, 0] @ kernel[:16, :16, 0, 0]
    exact = torch.conv2d(x.double(), kernel.double()), x[0, 0].double() @ kernel[:16, :16, 0, 0].double()
    for ours, true in zip(found, exact, strict=True):
        assert error[0] <= (ours - true).norm() / true.norm() <= error[1]
