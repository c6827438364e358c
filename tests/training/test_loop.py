"""Training: reproducible, resumable, and careful with what it has."""

import pytest
import torch

import regmixup as rm
from regmixup import data
from regmixup.data.splits import generator_for
from regmixup.training.config import resolve
from regmixup.training.shards import draw_shard
from tests.holding import held_by_another_process
from tests.training.short import IMAGES, assert_same_ending, ending, load_few


def config(**changes):
    return rm.configure("digits", **{"method": "regmixup", "epochs": 2, "dropout": 0.2, **changes})


def test_same_configuration_and_seed_give_the_same_bits_whatever_the_global_generator(tmp_path, finished_run):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    again = rm.train(config(), tmp_path)
    assert torch.equal(torch.rand(3), expected), "training left the global generator in another state"
    assert_same_ending(ending(again), ending(finished_run))


@pytest.mark.parametrize("lam", ["batch", "sample"])
def test_shards_of_alternate_have_lambdas_of_their_own_where_images_have(lam):
    """And one shard draws what the whole batch would."""
    objective = rm.Alternate(rm.Mixup(lam=lam), rm.CutMix(lam=lam))
    settings = config(objective=objective)
    first, second = (
        draw_shard(settings, number, 16, largest=16, shape=(1, 8, 8), epoch=0, step=5) for number in range(2)
    )
    assert first.branch == second.branch
    assert torch.equal(first.lam, second.lam) == (lam == "batch")
    whole = objective.draw(16, (1, 8, 8), generator_for(settings.seed, "draw", 0, 5))
    assert torch.equal(first.lam, whole.lam)
    assert torch.equal(first.partner, whole.partner)


def test_a_finished_run_is_not_repeated(run, tmp_path):
    before = run.checkpoint.stat().st_mtime_ns
    again = rm.train(config(), tmp_path, on_epoch=lambda record: pytest.fail("trained again"))
    assert again == run
    assert again.checkpoint.stat().st_mtime_ns == before


def test_regmixup_learns_the_digits(tmp_path):
    run = rm.train(rm.configure("digits", "regmixup", epochs=8), tmp_path)
    found = run.predict("digits/test")
    assert rm.metrics.accuracy(found.logits.softmax(1), found.labels) > 0.6


def test_a_run_owned_by_another_live_process_is_refused(tmp_path):
    folder = tmp_path / resolve(config(), torch.device("cpu")).name
    with held_by_another_process(folder) as pid, pytest.raises(RuntimeError, match=f"pid {pid}"):
        rm.train(config(), tmp_path, device="cpu")
    assert rm.train(config(), tmp_path, device="cpu").finished


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"network": "smal"}, "did you mean 'small'"),
        ({"epohcs": 3}, "did you mean 'epochs'"),
        ({"objective": "regmixup"}, "objective must be an Objective"),
        ({"objective": rm.DUQ()}, "head must be 'rbf' for DUQ"),
    ],
)
def test_a_wrong_configuration_is_explained(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


@pytest.mark.parametrize("changes", [{"batch_size": IMAGES - 1}, {"batch_size": IMAGES, "shards": IMAGES}], ids=str)
def test_an_image_alone_that_batch_norm_cannot_normalise_is_explained(tmp_path, monkeypatch, changes):
    """The last features of a ResNet-18 are one pixel of an image of 8 x 8."""
    monkeypatch.setattr(data, "load", load_few)
    with pytest.raises(
        ValueError, match=r"^batch_size must leave two images or more .* of resnet18 .*, got \d+ for 50 train images"
    ):
        rm.train(config(method="dnn", network="resnet18", **changes), tmp_path, device="cpu")
