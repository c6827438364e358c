"""Several processes compute what one does, and survive what processes suffer. Gloo on the CPU."""

import json
import signal
from dataclasses import fields, replace
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file

import regmixup as rm
from regmixup.training.batch_norm import ShardedBuffers
from regmixup.training.config import resolve
from regmixup.training.distributed import Ranks, joined
from regmixup.training.engine import choose_device
from regmixup.training.loop import Training
from regmixup.training.run import Run
from regmixup.training.stopping import stopping
from tests.training import elastic, ranks
from tests.training.short import assert_same_ending, ending

CPU = torch.device("cpu")


def only_run(folder):
    (found,) = folder.iterdir()
    return Run.open(found)


def weights(run):
    return load_file(run.checkpoint)


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_ranks_compute_what_one_process_does_part_after_part(tmp_path, world):
    """In float64, over epochs whose last batch is one image and leaves the other ranks nothing."""
    assert ranks.run_ranks(world, ranks.train_cases, tmp_path / "ranks") == [0] * world
    ranks.train_cases(tmp_path / "one", shards=world)
    for case in ranks.CASES:
        ours, one = only_run(tmp_path / "ranks" / case), only_run(tmp_path / "one" / case)
        assert ours.fingerprint == one.fingerprint
        assert ours.provenance()["processes"] == world
        found, expected = weights(ours), weights(one)
        counts = (".step", ".updates", ".epochs", ".selected_epoch")
        assert {tensor.dtype for name, tensor in found.items() if not name.endswith(counts)} == {torch.float64}
        # DUQ's penalty is on gradients of the images, which are float32.
        close = {"rtol": 0, "atol": 1e-6 if case == "duq" else 1e-10}
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], **close)
        for mine, theirs in zip(ours.history(), one.history(), strict=True):
            assert mine.keys() == theirs.keys()
            same = mine.keys() - {"seconds"}
            assert [mine[name] for name in same] == pytest.approx([theirs[name] for name in same], abs=1e-6)
        if case in ranks.PREDICTING:
            assert_one_process_predicts_the_same_bits(ours, case)


def assert_one_process_predicts_the_same_bits(run, case):
    """All but the class moments of features, which are sums over all images."""
    stored = run.predict_all(ranks.PREDICTED)
    for name in ranks.PREDICTED:
        run.predictions_path(name).unlink()
    with ranks.in_float64(case):
        again = run.predict_all(ranks.PREDICTED, device="cpu")
    for ours, one in zip(stored, again, strict=True):
        assert len(one) == len(rm.data.load(one.dataset))
        for field in fields(one):
            found, expected = getattr(ours, field.name), getattr(one, field.name)
            if field.name.startswith("class_") and expected is not None:
                torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
            else:
                same = torch.equal(found, expected) if isinstance(expected, torch.Tensor) else found == expected
                assert same, f"{case} {field.name}"


def test_a_signal_to_one_rank_stops_all_at_one_step_and_going_on_gives_the_same_bits(tmp_path, monkeypatch):
    """With three ranks, whose gradients have a sum that depends on the order; and the first rank alone prints."""
    config = ranks.digits(batch_size=64, dropout=0.2)
    assert ranks.run_ranks(3, ranks.stop_and_go_on, tmp_path, config) == [0, 0, 0]
    positions = [json.loads(line) for line in (tmp_path / "positions.jsonl").read_text().splitlines()]
    assert positions[:3] == [[0, 0], [1, 3], [0, 0]]
    whole, interrupted = only_run(tmp_path / "whole"), only_run(tmp_path / "interrupted")
    assert_same_ending(ending(interrupted), ending(whole))
    printed = [(tmp_path / f"{rank}.txt").read_text() for rank in range(3)]
    assert printed == [f"{whole.predictions_path('digits/val')}  448 x 10\n", "", ""]
    monkeypatch.setattr(Run, "build", ranks.build_plain)
    ensemble = next(run for run in map(Run.open, (tmp_path / "ensemble").iterdir()) if run.config.members == 2)
    members = [member.model(device="cpu") for member in ensemble.members()]
    images = rm.data.load("digits/val").images
    expected = torch.stack([torch.cat([model(x) for x in images.split(250)]) for model in members])
    assert torch.equal(ensemble.predict("digits/val", device="cpu").member_logits, expected)


def test_a_run_may_go_on_with_another_number_of_processes(tmp_path):
    """In float64; its shards are those of its configuration."""
    case = "with batch norm"
    config = replace(ranks.CASES[case], batch_size=64, shards=2)
    assert ranks.run_ranks(2, ranks.stop, tmp_path / "ranks", case, config) == [0, 0]
    assert not only_run(tmp_path / "ranks").finished
    with ranks.in_float64(case):
        resumed, whole = (rm.train(config, tmp_path / runs, device="cpu") for runs in ("ranks", "one"))
    assert resumed.provenance()["processes"] == 1
    found, expected = weights(resumed), weights(whole)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-10)


@pytest.mark.parametrize(("rank", "where"), [(0, "save"), (1, "step")])
def test_a_rank_that_fails_ends_the_others(tmp_path, rank, where):
    assert ranks.run_ranks(2, ranks.fail, tmp_path, rank, where) == [1, 1]


def test_a_loss_that_is_not_finite_on_one_rank_ends_all_of_them(tmp_path):
    assert ranks.run_ranks(2, ranks.diverge, tmp_path) == [7, 7]
    assert all(torch.isfinite(tensor).all() for tensor in weights(only_run(tmp_path)).values())


def test_killed_processes_and_a_stopped_torchrun_change_nothing(tmp_path):
    """Rank 1 of the first run is killed and restarted; torchrun is stopped during the second, and started again."""
    assert ranks.run_processes([(elastic.launch, tmp_path)]) != [0]
    positions = [json.loads(line) for line in (tmp_path / "positions.jsonl").read_text().splitlines()]
    assert positions == [[0, 0], [1, 0], [0, 0]]
    killed, stopped = (resolve(config, CPU, world=2) for config in (elastic.KILLED, elastic.STOPPED))
    again = Run(tmp_path / "runs" / stopped.name, stopped)
    assert not again.finished
    assert ranks.run_ranks(2, train_all, [stopped], tmp_path / "runs") == [0, 0]
    assert again.finished
    assert ranks.run_ranks(2, train_all, [killed, stopped], tmp_path / "undisturbed") == [0, 0]
    for config in (killed, stopped):
        found, expected = (Run(tmp_path / runs / config.name, config) for runs in ("runs", "undisturbed"))
        assert_same_ending(ending(found), ending(expected))


def test_a_second_signal_is_caught_too_under_torchrun():
    with stopping(patient=True) as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    assert stop.signal == signal.SIGTERM


def train_all(configs, runs):
    """Train each, as `elastic.train` does."""
    Run.build = ranks.build_plain
    for config in configs:
        rm.train(config, runs, device="cpu")


@pytest.mark.parametrize(
    "objective", [rm.HalfRegMixup(samples=2), rm.Alternate(rm.CutMix(), rm.RegCutMix(samples=2))], ids=str
)
def test_shards_of_unequal_size_have_one_lambda_and_one_box(tmp_path, objective):
    config = resolve(ranks.digits(objective=objective, batch_size=8, shards=3), CPU)
    dataset = rm.data.load("digits/train")
    training = Training(Run(tmp_path / config.name, config), dataset, CPU, Ranks(), rm.Engine(), 0)
    for step in range(6):
        shards = training.draw_shards(step, [None] * 3, 8)
        assert [shard.count for shard in shards] == [shard.draw.partner.shape[-1] for shard in shards] == [3, 3, 2]
        for a, b in pairwise(shard.draw for shard in shards):
            assert torch.equal(a.lam, b.lam)
            assert a.box is b.box is None or torch.equal(a.box, b.box)


def test_running_statistics_are_means_over_the_parts():
    """Batch norm moves m_r to m_r + 0.1 (m - m_r) for the mean m of its batch; with parts, for their weighted mean."""
    norm = torch.nn.BatchNorm1d(2).double()
    x = torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    statistics = ShardedBuffers(norm.buffers(), Ranks())
    for _ in range(2):
        statistics.begin()
        for part in (x[:5], x[5:]):
            with statistics.shard(len(part) / 7):
                norm(part)
        statistics.end()
    mean, var = x.mean(dim=0), 5 / 7 * x[:5].var(dim=0) + 2 / 7 * x[5:].var(dim=0)
    torch.testing.assert_close(norm.running_mean, (1 - 0.9**2) * mean, rtol=0, atol=1e-15)
    torch.testing.assert_close(norm.running_var, 0.9**2 + (1 - 0.9**2) * var, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("count", "world"), [(0, 2), (249, 3), (899, 3), (5000, 7)])
def test_shares_are_whole_batches_in_order(count, world):
    shares = [Ranks(rank, world).share(count, unit=250) for rank in range(world)]
    assert [index for share in shares for index in share] == list(range(count))
    assert all(share.start % 250 == 0 for share in shares if share)
    batches = [-(-len(share) // 250) for share in shares]
    assert max(batches) - min(batches) <= 1


def test_shards_that_processes_cannot_share_are_refused():
    with pytest.raises(ValueError, match="shards must be a multiple of the number of processes, 2, got 3"):
        resolve(ranks.digits(shards=3), CPU, world=2)


@pytest.fixture
def started_by_torchrun(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")


@pytest.mark.usefixtures("started_by_torchrun")
def test_processes_need_a_device_that_can_talk():
    with (
        pytest.raises(ValueError, match="device must be cpu or cuda for several processes, got mps"),
        joined(torch.device("mps")),
    ):
        pass


def test_every_process_has_its_gpu_even_where_it_sees_no_other(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    for visible, expected in ((8, "cuda:3"), (1, "cuda:0")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda visible=visible: visible)
        assert str(choose_device("cuda")) == expected
