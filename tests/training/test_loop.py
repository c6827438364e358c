"""Training: reproducible, resumable, and careful with what it has."""

from types import SimpleNamespace

import pytest
import torch

import regmixup as rm
from regmixup.data.splits import generator_for
from regmixup.training import loop
from regmixup.training.checkpoint import Position
from regmixup.training.config import resolve
from regmixup.training.guard import DivergedError
from regmixup.training.loop import Training
from regmixup.training.train import _mean_record
from tests.holding import held_by_another_process


def config(**changes):
    return rm.configure("digits", **{"method": "regmixup", "epochs": 2, "dropout": 0.2, **changes})


def weights(run):
    return run.model().state_dict()


def assert_equal_weights(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_same_configuration_and_seed_give_bit_equal_weights_whatever_the_global_generator(tmp_path, finished_run):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    again = rm.train(config(), tmp_path)
    assert torch.equal(torch.rand(3), expected), "training left the global generator in another state"
    assert_equal_weights(weights(again), weights(finished_run))


def test_another_seed_gives_other_weights(tmp_path, finished_run):
    other = rm.train(config(seed=1), tmp_path)
    assert other.folder.name != finished_run.folder.name
    assert not torch.equal(weights(other)["head.weight"], weights(finished_run)["head.weight"])


@pytest.mark.parametrize("method", ["regmixup", "regmixup+cutmix"])
def test_an_interrupted_run_goes_on_from_its_last_epoch_and_ends_bit_equal(tmp_path, method):
    whole = rm.train(config(method=method, epochs=3), tmp_path / "whole")

    def stop_after_two(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    every = rm.Engine(checkpoint_epochs=1)
    with pytest.raises(KeyboardInterrupt):
        rm.train(config(method=method, epochs=3), tmp_path / "cut", on_epoch=stop_after_two, engine=every)
    seen = []
    resumed = rm.train(config(method=method, epochs=3), tmp_path / "cut", on_epoch=lambda r: seen.append(r["epoch"]))
    assert seen == [3]
    assert_equal_weights(weights(whole), weights(resumed))
    drop_time = [{k: v for k, v in record.items() if k != "seconds"} for record in resumed.history()]
    assert drop_time == [{k: v for k, v in record.items() if k != "seconds"} for record in whole.history()]


@pytest.mark.parametrize("lam", ["batch", "sample"])
def test_shards_of_alternate_have_lambdas_of_their_own_where_images_have(lam):
    """And one shard draws what the whole batch would."""
    objective = rm.Alternate(rm.Mixup(lam=lam), rm.CutMix(lam=lam))
    training = SimpleNamespace(config=config(objective=objective), shape=(1, 8, 8), position=Position())
    first, second = (Training.draw(training, 5, shard, 16) for shard in range(2))
    assert first.branch == second.branch
    assert torch.equal(first.lam, second.lam) == (lam == "batch")
    whole = objective.draw(16, (1, 8, 8), generator_for(training.config.seed, "draw", 0, 5))
    assert torch.equal(first.lam, whole.lam)
    assert torch.equal(first.partner, whole.partner)


def test_a_finished_run_is_not_repeated(run, tmp_path):
    before = run.checkpoint.stat().st_mtime_ns
    again = rm.train(config(), tmp_path, on_epoch=lambda record: pytest.fail("trained again"))
    assert again == run
    assert again.checkpoint.stat().st_mtime_ns == before


def test_regmixup_learns_the_digits(tmp_path):
    run = rm.train(rm.configure("digits", "regmixup", epochs=15), tmp_path)
    found = run.predict("digits/test")
    assert rm.metrics.accuracy(found.logits.softmax(1), found.labels) > 0.8


def test_the_history_reports_means_over_images(tmp_path):
    """With lr so small that nothing moves, the mean clean loss is the loss on the data, partial batch included."""
    still = config(method="dnn", epochs=1, lr=1e-12, dropout=0.0, crop_padding=0, batch_size=64)
    run = rm.train(still, tmp_path, device="cpu")
    data = rm.data.load("digits/train")
    model = run.model(device="cpu").train()
    with torch.no_grad():
        parts = [model(x) for x in data.images.split(450)]
    assert run.history()[0]["clean"] == pytest.approx(
        torch.nn.functional.cross_entropy(torch.cat(parts), data.labels).item(), rel=0.05
    )
    assert run.history()[0]["loss"] == run.history()[0]["clean"]


def test_a_divergent_run_stops_with_advice_and_keeps_its_last_good_checkpoint(tmp_path, monkeypatch):
    original = loop.Training.start_epoch

    def poison_second_epoch(self, *args):
        if self.position.epoch == 1:
            with torch.no_grad():
                self.model.head.weight.fill_(float("nan"))
        return original(self, *args)

    monkeypatch.setattr(loop.Training, "start_epoch", poison_second_epoch)
    with pytest.raises(DivergedError, match=r"epoch 2, step 1 .*lr"):
        rm.train(config(epochs=3), tmp_path, engine=rm.Engine(checkpoint_epochs=1))
    monkeypatch.undo()
    resumed = rm.train(config(epochs=3), tmp_path)
    assert all(torch.isfinite(v).all() for v in weights(resumed).values())


def test_deleting_a_damaged_checkpoint_trains_the_run_again_to_the_same_weights(run, tmp_path):
    expected = weights(run)
    run.checkpoint.unlink()
    assert_equal_weights(weights(rm.train(config(), tmp_path)), expected)


def test_a_run_owned_by_another_live_process_is_refused(tmp_path):
    folder = tmp_path / resolve(config(), torch.device("cpu")).name
    with held_by_another_process(folder) as pid, pytest.raises(RuntimeError, match=f"pid {pid}"):
        rm.train(config(), tmp_path, device="cpu")
    assert rm.train(config(), tmp_path, device="cpu").finished


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer >= 1, got 0"),
        ({"lr": -1.0}, "lr must be a finite number > 0, got -1.0"),
        ({"network": "smal"}, "did you mean 'small'"),
        ({"train_set": "digits/trian"}, "did you mean 'digits/train'"),
        ({"method": "regmixpu"}, "did you mean 'regmixup'"),
        ({"epohcs": 3}, "did you mean 'epochs'"),
        ({"seed": -1}, "seed must be an integer >= 0, got -1"),
        ({"objective": "regmixup"}, "objective must be an Objective"),
        ({"schedule": "step"}, "milestones must name at least one epoch"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"std": (0.0,)}, "std > 0"),
    ],
)
def test_a_wrong_configuration_is_explained(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)


def test_bfloat16_trains_too(tmp_path):
    run = rm.train(config(precision="bfloat16"), tmp_path)
    assert run.history()[-1]["loss"] < run.history()[0]["loss"]


def test_a_part_that_only_some_steps_have_is_averaged_over_those(tmp_path):
    """At a learning rate that moves nothing, the clean loss does not depend on how often it was looked at."""
    still = {"epochs": 1, "lr": 1e-12, "dropout": 0.0}
    always = rm.train(config(method="dnn", **still), tmp_path).history()[0]["clean"]
    sometimes = rm.train(config(method="regmixup+cutmix", **still), tmp_path).history()[0]["clean"]
    assert sometimes == pytest.approx(always, rel=0.1)


def test_an_ensembles_record_is_the_mean_over_the_members_that_have_a_part():
    """Under Alternate a short epoch can miss one branch in some members and not in others."""
    branches = [{"loss": 1.0}, {"loss": 2.0, "clean": 0.5}, {"loss": 6.0, "clean": 1.0}]
    records = [{"epoch": 2, **values} for values in branches]
    assert _mean_record(records) == {"epoch": 2, "loss": 3.0, "clean": 0.75}


def test_an_ensemble_does_without_the_history_that_somebody_deleted(tmp_path):
    member = rm.train(config(epochs=1, seed=1), tmp_path)
    (member.folder / "history.jsonl").unlink()
    ensemble = rm.train(config(epochs=1, members=2), tmp_path)
    assert member.folder in [one.folder for one in ensemble.members()]
    assert ensemble.history() == rm.train(config(epochs=1), tmp_path).history()


@pytest.mark.parametrize("workers", [-1, 1.5, "2"])
def test_workers_are_counted_even_where_none_are_needed(tmp_path, workers):
    with pytest.raises(ValueError, match=f"workers must be an integer >= 0, got {workers!r}"):
        rm.train(config(), tmp_path, workers=workers)


def test_a_name_is_no_configuration(tmp_path):
    with pytest.raises(ValueError, match=r"config must be a TrainConfig, as rm.configure\(...\) returns, got 'digits'"):
        rm.train("digits", tmp_path)


def test_runs_that_cannot_be_a_folder_are_explained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot write to .*: Not a directory; choose another folder"):
        rm.train(config(), tmp_path / "file")


def test_a_damaged_config_is_written_again(tmp_path):
    run = rm.train(config(epochs=1), tmp_path)
    (run.folder / "provenance.json").unlink()
    (run.folder / "config.json").write_text("x")
    assert rm.Run.open(rm.train(config(epochs=1), tmp_path).folder).config == run.config


def test_training_needs_no_home_directory(tmp_path, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.home", homeless)
    assert rm.train(config(epochs=1), tmp_path, device="cpu").finished


def test_an_objective_of_ones_own_trains(tmp_path):
    from dataclasses import dataclass

    @dataclass(frozen=True, kw_only=True)
    class Halved(rm.Objective):
        def compute(self, model, x, y, draw):
            return rm.LossOutput(torch.nn.functional.cross_entropy(model(x), y) / 2)

    run = rm.train(config(objective=Halved()), tmp_path)
    assert run.folder.name.startswith("halved-")
    assert run.history()[-1]["loss"] < run.history()[0]["loss"]
