"""The cost of runs: arithmetic on the step times, the pace of similar runs, and time limits."""

import os
import time
from dataclasses import replace

import pytest
import torch

from regmixup import run_folder
from regmixup.config import encode
from regmixup.data import load
from regmixup.data.catalogue import find
from regmixup.methods import METHODS
from regmixup.objectives.regmixup import RegMixup
from regmixup.storage import write_json
from regmixup.study import cost as module
from regmixup.study.cost import (
    RESERVE,
    Budget,
    estimate,
    evaluation_minutes,
    measured_epoch,
    plain_milliseconds,
    relative_time,
    step_times,
    training_minutes,
)
from regmixup.study.plan import load_study
from regmixup.study.tasks import find_tasks
from regmixup.training.config import configure
from regmixup.training.run import Run
from tests.study.mini import MINI, write_mini
from tests.study.test_plan import CIFAR


def tasks_of(folder, text):
    """The tasks of a study file, whose runs would lie in the folder."""
    plan = list(load_study(str(write_mini(folder, text))).runs())
    return find_tasks(plan, folder / "runs", torch.device("cpu"), [])


def test_a_training_costs_its_images_times_the_time_of_a_step():
    minutes = training_minutes("regmixup", configure("cifar10-wrn28-10", "regmixup"))
    assert minutes == pytest.approx(350 * 50_000 / 128 * 20.31 / 60_000)
    precise = replace(configure("cifar10-wrn28-10", "regmixup"), precision="float32")
    assert training_minutes("regmixup", precise) == pytest.approx(6.8 * minutes)
    sngp = configure("cifar10-wrn28-10", "sngp")  # its batches are twice as large, its steps half as many
    assert training_minutes("sngp", sngp) == pytest.approx(250 * 50_000 / 128 * 10.89 * 48.5 / 17.3 / 60_000)


def test_a_step_takes_as_long_as_the_images_that_it_forwards():
    """In the ratio of RegMixup, which forwards two; with a constraint or a head, in that of eager steps."""
    times = {
        name: relative_time(name, configure("cifar10-wrn28-10", name))
        for name in ("dnn", "mixup", "kfac-llla", "regcutmix", "regmixup+cutmix", "dnn-sn")
    }
    assert times["dnn"] == times["mixup"] == times["kfac-llla"] == 1
    assert times["regcutmix"] == pytest.approx(20.31 / 10.89)
    assert times["regmixup+cutmix"] == pytest.approx((10.89 + 20.31) / 2 / 10.89)
    assert times["dnn-sn"] == pytest.approx(46.6 / 17.3)
    twice = replace(configure("cifar10-resnet18", "regmixup"), objective=RegMixup(samples=2))
    assert relative_time("regmixup", twice) == pytest.approx(1 + 2 * (11.16 / 6.66 - 1))  # the ratio of ResNet-50
    assert plain_milliseconds("wrn28-10-sngp") == 10.89
    assert plain_milliseconds("timm/resnet18") is None


def test_every_factor_belongs_to_a_method_and_sizes_are_those_of_the_data():
    for table in step_times().values():
        for name, times in table.items():
            assert name == "how" or set(times) <= set(METHODS)
    assert find("path:digits/test").images == len(load("path:digits/test"))
    assert find("cifar10/train-90").images + find("cifar10/val-10").images == find("cifar10/train").images


def test_what_is_not_known_is_not_invented(tmp_path):
    text = MINI.replace("epochs = 5", 'network = "timm/resnet18"')
    assert "time unknown" in str(estimate(tasks_of(tmp_path, text)))


def test_an_ensemble_shares_its_models_with_plain_training_and_companions_count(tmp_path):
    text = CIFAR.replace('["dnn", "regmixup"]', '["dnn", "deep-ensemble"]').replace("regmixup = [", "dnn = [")
    text = text.replace("seeds = [3, 4]", "seeds = [0, 1]").replace(', "cifar10-resnet50"]', "]")
    text = text.replace("[train.cifar10-resnet50]\nepochs = 9\nmilestones = [4]\n", "")
    # Each of two recipes: 10 members of two ensembles, two of which are plain runs; companions: 5 members, one plain.
    assert estimate(tasks_of(tmp_path, text)).networks == 2 * (10 + 5)


@pytest.fixture
def tasks(tmp_path):
    return tasks_of(tmp_path, MINI)


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def write_history(run, seconds, ago=0):
    """ago: the seconds since its last epoch."""
    write_json(run.folder / run_folder.CONFIG, encode(run.config))
    records = [{"epoch": i, "loss": 1.0, "seconds": s} for i, s in enumerate(seconds, start=1)]
    run_folder.write_history(run.folder, records)
    os.utime(run.folder / run_folder.HISTORY, (time.time() - ago,) * 2)


@pytest.mark.parametrize(
    ("earlier", "now", "expected"),
    [
        ([4.2] * 5, [4.2] * 6 + [2.1] * 2, 2.1),
        ([1.1] * 5, [1.1] * 6 + [4.2] * 2, 4.2),
        ([1.1] * 5, [1.1, 1.1, 60.0, 1.1], 1.1),
        ([1.1] * 5, [60.0], 1.1),
    ],
    ids=["falling", "rising", "one slow epoch", "compiling"],
)
def test_the_last_epochs_of_any_similar_run_decide(tasks, earlier, now, expected):
    """Here a run of another study, which another process trains now."""
    first, second = (task.run for task in tasks if task.label.startswith("dnn"))
    runs = first.folder.parent
    assert measured_epoch(second.config, runs) is None
    write_history(first, earlier, ago=600)
    other = replace(first.config, seed=7, epochs=9)
    write_history(Run.of(other, runs), now)
    write_history(Run.of(replace(other, batch_size=32), runs), [1000.0] * 5)
    damaged = Run.of(replace(other, seed=8), runs)
    write_history(damaged, [1000.0] * 5)
    (damaged.folder / run_folder.CONFIG).write_text("{")
    assert measured_epoch(second.config, runs) == expected


def test_a_run_fits_if_its_epochs_its_evaluation_and_a_reserve_do(tasks, clock):
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    write_history(first.run, [30.0, 10.0, 10.0, 10.0, 10.0])
    budget = Budget(2)
    seconds = 50 + 60 * evaluation_minutes(second.planned)
    assert budget.seconds(second) == pytest.approx(RESERVE * seconds)
    clock[0] = 120 - RESERVE * seconds - 0.1
    assert budget.fits(second)
    clock[0] += 0.2
    assert not budget.fits(second)


def test_only_members_and_companions_that_are_not_trained_count(tmp_path, monkeypatch):
    text = MINI.replace('["dnn", "regmixup"]', '["deep-ensemble"]').replace("[0, 1]", "[0]")
    (task,) = tasks_of(tmp_path, text)
    *trained, last = task.run.members()
    companion = Run.of(replace(last.config, train_set="digits/val"), tmp_path / "runs")
    for run in (*trained, companion):
        write_history(run, [30.0, 10.0, 10.0, 10.0, 10.0])
    done = {run.folder for run in trained}
    monkeypatch.setattr(Run, "finished", property(lambda run: run.folder in done))
    evaluation = evaluation_minutes(task.planned)
    for more, models in ((None, 1), (companion, 2)):
        left = estimate([replace(task, companion=more)])
        assert (left.networks, left.minutes) == (models, pytest.approx(models * 50 / 60 + evaluation))
    done.add(companion.folder)
    assert estimate([replace(task, companion=companion)]).networks == 1


@pytest.mark.parametrize("weights", [True, False])
def test_epochs_that_are_trained_do_not_count_unless_their_weights_are_gone(tasks, weights):
    write_history(tasks[0].run, [30.0, 10.0, 10.0])
    if weights:
        tasks[0].run.checkpoint.touch()
    left = estimate([tasks[0]])
    assert left.minutes - evaluation_minutes(tasks[0].planned) == pytest.approx((20 if weights else 50) / 60)
    assert left.device == "this machine"


def test_a_run_of_unknown_pace_is_begun_before_the_end_alone(tasks, clock, monkeypatch):
    monkeypatch.setattr(module, "training_minutes", lambda *_: None)
    budget = Budget(1)
    assert all(budget.fits(task) for task in tasks)
    clock[0] = 60.0
    assert not any(budget.fits(task) for task in tasks)
    with pytest.raises(ValueError, match="minutes must be a finite number >= 0, got -1"):
        Budget(-1)
