"""The state of a study: its runs, how long they take, time limits, and the data that it lacks."""

import json
import os
import shutil
import time
from dataclasses import replace

import pytest
import torch

from regmixup import run_folder
from regmixup.config import encode
from regmixup.data import load
from regmixup.data.catalogue import find
from regmixup.data.files import MissingDataError
from regmixup.methods import METHODS
from regmixup.objectives.regmixup import RegMixup
from regmixup.storage import write_json
from regmixup.study import status as module
from regmixup.study.runner import run_study
from regmixup.study.status import (
    RESERVE,
    Budget,
    Estimate,
    estimate,
    evaluation_minutes,
    measured_epoch,
    missing_data,
    plain_milliseconds,
    relative_time,
    state_of,
    status_lines,
    step_times,
    training_minutes,
)
from regmixup.study.tasks import find_tasks
from regmixup.training.config import configure
from regmixup.training.run import Run
from tests.data.official import write_cifar
from tests.holding import held_by_another_process
from tests.study.mini import MINI, load_mini, plan_mini
from tests.study.test_plan import CIFAR


def tasks_of(folder, text):
    """The tasks of a study file, whose runs would lie in the folder."""
    return find_tasks(plan_mini(folder, text), folder / "runs", torch.device("cpu"), [])


@pytest.mark.parametrize(("minutes", "words"), [(0.2, "1 minute"), (1.2, "1 minute"), (1.6, "2 minutes")])
def test_times_of_minutes_are_in_words(minutes, words):
    assert str(Estimate(1, minutes, "2 CPU cores")) == f"1 network to train, about {words} on 2 CPU cores"


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
        for name in ("dnn", "mixup", "kfac-llla", "regcutmix", "regmixup+cutmix", "dnn-sn", "rotation", "sure")
    }
    assert times["dnn"] == times["mixup"] == times["kfac-llla"] == 1
    assert times["regcutmix"] == pytest.approx(20.31 / 10.89)
    assert times["regmixup+cutmix"] == pytest.approx((10.89 + 20.31) / 2 / 10.89)
    assert times["dnn-sn"] == pytest.approx(46.6 / 17.3)
    assert times["rotation"] == pytest.approx(1 + 3 * (20.31 / 10.89 - 1))  # four images, and a head that costs nothing
    assert times["sure"] == pytest.approx(2 * 20.31 / 10.89)  # SAM's two passes of two images
    twice = replace(configure("cifar10-resnet18", "regmixup"), objective=RegMixup(samples=2))
    assert relative_time("regmixup", twice) == pytest.approx(1 + 2 * (3.49 / 2.35 - 1))
    dense = configure("cifar10-densenet121", "regmixup")
    assert relative_time("regmixup", dense) == pytest.approx(11.16 / 6.66)  # not measured: the ratio of ResNet-50
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
    first, second = (task.run for task in tasks if task.title.startswith("dnn"))
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


@pytest.mark.parametrize(
    "change",
    [{"image_size": 96}, {"rand_augment": 2}, {"cutout": 4}, {"freeze": "always"}, {"sharpness": "sam"}],
    ids=lambda change: next(iter(change)),
)
def test_a_run_whose_epochs_take_another_time_says_nothing(tasks, change):
    run = tasks[0].run
    unlike = Run.of(replace(run.config, seed=7, **change), run.folder.parent)
    write_history(unlike, [9.0] * 5)
    assert measured_epoch(run.config, run.folder.parent) is None
    assert measured_epoch(replace(unlike.config, seed=8), run.folder.parent) == 9.0


def test_a_run_fits_if_its_epochs_its_evaluation_and_a_reserve_do(tasks, clock):
    first, second = (task for task in tasks if task.title.startswith("dnn"))
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


def test_initial_weights_that_are_the_model_take_no_time_to_train(tmp_path):
    (tmp_path / "weights").write_text("only their checksum is read")
    tasks = tasks_of(tmp_path, MINI.replace("epochs = 5", f'epochs = 0\ninit = "{tmp_path}/weights"'))
    left = estimate([tasks[0]])
    assert (left.networks, left.minutes) == (1, evaluation_minutes(tasks[0].planned))
    assert "epoch 0/0" in next(status_lines(tasks))


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


@pytest.fixture
def half_done(finished_study, tmp_path):
    """The mini study with its first run finished, its second interrupted and the others not begun."""
    plan = list(finished_study.study.runs())
    entries = json.loads((finished_study.folder / "study.json").read_text())["runs"]
    for entry in entries[:2]:
        shutil.copytree(finished_study.runs / entry["folder"], tmp_path / entry["folder"])
    stopped = tmp_path / entries[1]["folder"]
    (stopped / "provenance.json").unlink()
    lines = (stopped / "history.jsonl").read_text().splitlines()[:2]
    records = [{**json.loads(line), "loss": 0.5, "seconds": 10.0} for line in lines]
    (stopped / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return plan, tmp_path, stopped


def look(plan, runs):
    return find_tasks(plan, runs, torch.device("cpu"), [runs])


def test_records_without_seconds_or_loss_are_no_error(half_done):
    plan, runs, stopped = half_done
    lines = [{"epoch": 1, "loss": 0.5, "seconds": 10.0}, {"epoch": 2, "loss": 0.5}, {"epoch": 3, "seconds": 20.0}]
    run_folder.write_history(stopped, lines)
    assert measured_epoch(look(plan, runs)[1].run.config, runs) == 20.0
    (line,) = (line for line in status_lines(look(plan, runs)) if str(stopped) in line)
    assert "epoch 3/5, " in line
    assert "loss" not in line


def test_done_interrupted_and_waiting_runs(half_done):
    plan, runs, _ = half_done
    tasks = look(plan, runs)
    assert [state_of(task) for task in tasks] == ["done", "to do", "to do", "to do"]
    evaluation = evaluation_minutes(plan[1])
    assert estimate([tasks[1]]).minutes == pytest.approx(30 / 60 + evaluation)  # three epochs at ten seconds
    assert estimate([tasks[3]]).minutes == pytest.approx(50 / 60 + evaluation)  # by the pace of the other seed
    (fresh,) = look([plan[1]], runs / "none")
    assert estimate([fresh]).device == "2 CPU cores"  # by the table
    assert str(estimate([tasks[0]])) == "0 networks to train, no time"
    assert "epoch 0/5, " in next(status_lines([fresh]))
    lines = list(status_lines(tasks))
    assert lines[0] == f"done    dnn seed 0       {tasks[0].run.folder}"
    assert lines[1].startswith("to do   regmixup seed 0  epoch 2/5, loss 0.500, 0.5 min left  ")
    assert lines[4] == "runs    1 done, 3 to do"


def test_a_run_is_running_while_a_living_process_holds_its_folder_and_failed_after_an_error(half_done):
    plan, runs, stopped = half_done
    (stopped / "failure.txt").write_text("Traceback ...\nDivergedError: the loss became nan\n")
    with held_by_another_process(stopped):
        assert state_of(look(plan, runs)[1]) == "running"
    (stopped / ".owner").write_text("1")  # as a killed process leaves it
    line = list(status_lines(look(plan, runs)))[1]
    assert line.startswith("failed  regmixup seed 0")
    assert "DivergedError: the loss became nan  " in line


def test_a_failed_run_that_another_process_has_begun_again_is_listed_all_the_same(half_done, monkeypatch):
    plan, runs, stopped = half_done
    monkeypatch.setattr(module, "state_of", lambda task: "failed")  # as it was when the listing began
    assert not (stopped / "failure.txt").exists()
    assert all(line.startswith("failed") for line in list(status_lines(look(plan, runs)))[:-1])


@pytest.mark.parametrize("lost", ["rows-*.csv", "checkpoint.safetensors"])
def test_what_lacks_rows_or_weights_is_not_done(half_done, lost):
    plan, runs, _ = half_done
    (task,) = look([plan[0]], runs)
    assert (state_of(task), task.done, Budget(0).fits(task)) == ("done", True, True)
    (path,) = task.run.folder.glob(lost)
    path.unlink()
    assert (state_of(task), task.done, Budget(0).fits(task)) == ("to do", False, False)


def test_missing_files_are_found_for_trained_companion_and_evaluated_sets(tmp_path):
    tasks = tasks_of(tmp_path, CIFAR)
    _, *lines = missing_data(tasks, tmp_path).splitlines()  # one per family, not per set
    assert [line.partition(":")[0].strip() for line in lines] == ["cifar10", "cifar10-c", "svhn", "cifar100"]
    assert "  svhn: test_32x32.mat" in lines
    assert "  cifar100: cifar-100-python/train and 1 more" in lines
    write_cifar(tmp_path, "cifar10")
    assert "cifar10:" not in missing_data(tasks, tmp_path)
    listed = tasks_of(tmp_path, CIFAR.replace('"svhn/test"', '"tiny-imagenet/openood-cifar10"'))
    assert "tiny-imagenet: tiny-imagenet-200/wnids.txt and 5 more" in missing_data(listed, tmp_path)  # with the lists


def test_a_study_without_its_data_trains_nothing(tmp_path):
    study = load_mini(tmp_path, CIFAR)
    with pytest.raises(MissingDataError, match="the study needs data that is missing"):
        run_study(study, tmp_path / "runs", root=tmp_path, device="cpu")
    assert not (tmp_path / "runs").exists()


def test_the_validation_set_of_training_must_be_there(tmp_path):
    text = MINI.replace("epochs = 5", f'epochs = 5\nvalidation = "folder:{tmp_path}/mine"')
    assert missing_data(tasks_of(tmp_path, text)).endswith(f"folder: folder:{tmp_path}/mine")


def test_a_folder_of_images_must_be_there(tmp_path):
    text = MINI.replace('"photographs/test"', f'"folder:{tmp_path}/ood"')
    assert missing_data(tasks_of(tmp_path, text)).endswith(f": folder:{tmp_path}/ood")
    (tmp_path / "ood").mkdir()
    assert missing_data(tasks_of(tmp_path, text)) == ""
    assert missing_data(tasks_of(tmp_path, MINI.replace("photographs/test", "folder:ood")), tmp_path) == ""
