"""Cost, state and time limit of runs: arithmetic on the step times, the pace of similar runs, and the run folders."""

import io
import json
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from regmixup import run_folder
from regmixup.config import encode
from regmixup.data import load
from regmixup.data.catalogue import find
from regmixup.methods import METHODS
from regmixup.objectives.regmixup import RegMixup
from regmixup.storage import write_json
from regmixup.study import status as module
from regmixup.study.plan import load_study
from regmixup.study.status import (
    PASSES,
    RESERVE,
    Budget,
    Estimate,
    Paces,
    estimate,
    evaluation_minutes,
    run_status,
    show_status,
    spent,
    step_milliseconds,
    step_times,
    timing_lines,
    training_minutes,
)
from regmixup.study.tasks import find_tasks
from regmixup.training.config import configure, resolve
from regmixup.training.run import Run
from tests.holding import held_by_another_process
from tests.study.mini import MINI, write_mini
from tests.study.test_plan import CIFAR

CPU = torch.device("cpu")


# By the table


def test_a_training_costs_its_images_times_the_time_of_a_step():
    minutes = training_minutes("regmixup", configure("cifar10-wrn28-10", "regmixup"))
    assert minutes == pytest.approx(350 * 50_000 / 128 * 20.31 / 60_000)
    assert 45 < minutes < 48  # 391 steps, 350 epochs
    clean = replace(configure("cifar10-wrn28-10", "regmixup"), objective=RegMixup(passes="separate-clean"))
    assert training_minutes("regmixup", clean) == pytest.approx(minutes * 2 * 10.89 / 20.31)
    precise = replace(configure("cifar10-wrn28-10", "regmixup"), precision="float32")
    assert training_minutes("regmixup", precise) == pytest.approx(6.8 * minutes)
    sngp = configure("cifar10-wrn28-10", "sngp")  # its batches are twice as large, its steps half as many
    assert training_minutes("sngp", sngp) == pytest.approx(250 * 50_000 / 128 * 10.89 * 48.5 / 17.3 / 60_000)


def test_a_step_time_is_the_measured_one_or_follows_from_measured_ones():
    assert step_milliseconds("resnet50", "regmixup") == 11.16
    assert step_milliseconds("wrn28-10", "mixup") == step_milliseconds("wrn28-10-sngp", "dnn") == 10.89
    assert step_milliseconds("wrn28-10", "regcutmix") == pytest.approx(20.31)  # two passes, as RegMixup
    assert step_milliseconds("wrn28-10", "regmixup+cutmix") == pytest.approx((10.89 + 20.31) / 2)
    assert step_milliseconds("wrn28-10", "dnn-sn") == pytest.approx(10.89 * 46.6 / 17.3)  # eager times give the ratio
    assert step_milliseconds("resnet18", "regmixup") == pytest.approx(2.5 * 11.16 / 6.66)  # the ratio of ResNet-50
    assert step_milliseconds("resnet50", "regmixup", apart=True) == 2 * 6.66  # two passes, each a plain step
    assert step_milliseconds("small", "kfac-llla") == 40.0  # trains as dnn does
    assert step_milliseconds("timm/resnet18", "dnn") is None


def test_documents_and_the_cost_table_have_the_same_step_times():
    """Compiled: rows `| network | method | ours | ms |`. Eager: rows `| method | ms | relative | ms | relative |`."""
    text = "".join(path.read_text() for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md")))
    rows = re.findall(r"\| (\S+) \| (\S+) \| ours \| ([\d.]+) ", text)
    compiled = {(network, method): float(ms) for network, method, ms in rows}
    tables = {network: times for network, times in step_times()["compiled"].items() if network != "how"}
    measured = {(network, method): ms for network, times in tables.items() for method, ms in times.items()}
    assert len(compiled.keys() & measured.keys()) == 4
    assert all(compiled[place] == measured[place] for place in compiled.keys() & measured.keys())


def test_every_factor_belongs_to_a_method_and_sizes_are_those_of_the_data():
    for table in step_times().values():
        for name, times in table.items():
            assert name == "how" or set(times) <= set(METHODS)
    assert set(PASSES) <= set(METHODS)
    assert find("path:digits/test").images == len(load("path:digits/test"))
    assert find("cifar10/train-90").images + find("cifar10/val-10").images == find("cifar10/train").images


def test_what_is_not_known_is_not_invented(tmp_path):
    text = MINI.replace("epochs = 5", 'network = "timm/resnet18"')
    assert "time unknown" in str(estimate(load_study(str(write_mini(tmp_path, text))).runs()))


def test_an_ensemble_shares_its_models_with_plain_training_and_companions_count(tmp_path):
    text = CIFAR.replace('["dnn", "regmixup"]', '["dnn", "deep-ensemble"]').replace("regmixup = [", "dnn = [")
    text = text.replace("seeds = [3, 4]", "seeds = [0, 1]").replace(', "cifar10-resnet50"]', "]")
    text = text.replace("[train.cifar10-resnet50]\nepochs = 9\nmilestones = [4]\n", "")
    plan = list(load_study(str(write_mini(tmp_path, text))).runs())
    # Each of two recipes: 10 members of two ensembles, two of which are plain runs; companions: 5 members, one plain.
    assert estimate(plan).networks == 2 * (10 + 5)


def test_an_estimate_is_rounded_and_says_on_what():
    assert str(Estimate(1, 0.2, "2 CPU cores")) == "1 network to train, about 1 minute on 2 CPU cores"
    days = "3 networks to train, about 20,000 GPU minutes (14 days) on one H200"
    assert str(Estimate(3, 20_000.0, "one H200")) == days


# What runs took


def write_history(run, seconds, ago=0):
    """ago: the seconds since its last epoch."""
    write_json(run.folder / run_folder.CONFIG, encode(run.config))
    records = [{"epoch": i, "loss": 1.0, "seconds": s} for i, s in enumerate(seconds, start=1)]
    run_folder.write_history(run.folder, records)
    os.utime(run.folder / run_folder.HISTORY, (time.time() - ago,) * 2)


def test_the_median_epoch_without_the_first_relative_to_plain_training(tmp_path):
    text = MINI.replace('"regmixup"]', '"mixup", "deep-ensemble"]').replace("[0, 1]", "[0]")
    plan = list(load_study(str(write_mini(tmp_path, text))).runs())
    assert timing_lines(plan, tmp_path, CPU) == []
    for planned, seconds in zip(plan[:2], ([9.0, 1.0, 2.0, 3.0], [9.0, 5.0]), strict=True):
        write_history(Run.of(resolve(planned.config, CPU), tmp_path), seconds)
    for member in range(1, 5):  # the first is the plain run
        write_history(Run.of(resolve(plan[2].config.models()[member], CPU), tmp_path), [9.0, 2.0])
    assert timing_lines(plan, tmp_path, CPU) == [
        ("digits", "dnn", "2", "1.00"),
        ("digits", "mixup", "5", "2.50"),
        ("digits", "deep-ensemble", "10", "5.00"),
    ]


def test_what_runs_cost_counts_each_network_once(tmp_path):
    records = {
        "a": {"device": "GPU one", "seconds": 90.0},
        "b": {"device": "GPU one", "seconds": 150.0},
        "ab": {"device": "GPU one", "seconds": 240.0, "members": ["a", "b"]},
        "c": {"device": "GPU two", "seconds": 60.0},
    }
    for name, record in records.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "provenance.json").write_text(json.dumps(record))
    a, b, ab, c = (tmp_path / name for name in records)
    assert spent([]) == "0 networks, no time"
    assert spent([a, b, a, ab]) == "2 networks, 4 minutes of training on GPU one"
    assert spent([a, ab]) == spent([a, b])  # the other member was trained, too
    assert spent([ab], [a, ab]) == spent([b])  # and the first is counted elsewhere
    assert spent([ab, c]) == "3 networks, 4 minutes of training on GPU one, 1 minute of training on GPU two"


# States


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
    records = [{**json.loads(line), "seconds": 10.0} for line in lines]
    (stopped / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return plan, tmp_path, stopped


def states(plan, runs):
    return [run_status(task, Paces([runs], CPU)) for task in find_tasks(plan, runs, CPU, [runs])]


def test_done_interrupted_and_waiting_runs(half_done):
    plan, runs, stopped = half_done
    statuses = states(plan, runs)
    assert [s.state for s in statuses] == ["done", "waiting", "waiting", "waiting"]
    assert [(s.epoch, s.epochs) for s in statuses] == [(5, 5), (2, 5), (0, 5), (0, 5)]
    assert statuses[0].seconds_left is None
    evaluation = 60 * evaluation_minutes(plan[1])
    assert statuses[1].seconds_left == pytest.approx(30 + evaluation)  # three epochs at ten seconds
    assert statuses[3].seconds_left == pytest.approx(50 + evaluation)  # by the pace of the other seed
    assert statuses[1].loss == json.loads((stopped / "history.jsonl").read_text().splitlines()[-1])["loss"]
    (fresh,) = states([plan[1]], runs / "none")
    assert fresh.seconds_left == pytest.approx(60 * estimate([plan[1]]).minutes)  # by the table
    assert estimate([fresh.task]) == estimate([plan[1]])
    assert str(estimate([statuses[0].task])) == "0 networks to train, no time"


def test_a_run_is_running_while_a_living_process_holds_its_folder_and_failed_after_an_error(half_done):
    plan, runs, stopped = half_done
    (stopped / "failure.txt").write_text("Traceback ...\nDivergedError: the loss became nan\n")
    with held_by_another_process(stopped):
        assert states(plan, runs)[1].state == "running"
    (stopped / ".owner").write_text("1")  # as a killed process leaves it
    status = states(plan, runs)[1]
    assert (status.state, status.note) == ("failed", "DivergedError: the loss became nan")


@pytest.mark.parametrize("lost", ["rows-*.csv", "checkpoint.safetensors"])
def test_what_lacks_rows_or_weights_is_not_done(half_done, lost):
    plan, runs, _ = half_done
    (done,) = states([plan[0]], runs)
    assert (done.state, done.task.done, Budget(0, [runs], CPU).fits(done.task)) == ("done", True, True)
    (path,) = done.task.run.folder.glob(lost)
    path.unlink()
    (status,) = states([plan[0]], runs)
    assert (status.state, status.task.done, Budget(0, [runs], CPU).fits(status.task)) == ("waiting", False, False)


def test_the_table_is_printed_once_where_there_is_no_terminal(half_done, capsys):
    plan, runs, _ = half_done
    show_status(lambda: states(plan, runs), "[Mini]", Console(width=100))
    text = capsys.readouterr().out
    assert "[Mini]" in text
    assert "1 done, 3 waiting of 4 runs" in text
    assert text.index("regmixup seed 0") < text.index("dnn seed 0")  # what is done comes last


def test_in_a_terminal_it_is_kept_up_to_date_until_all_is_done(half_done, finished_study, monkeypatch):
    plan, runs, _ = half_done
    looks = []

    def finish(seconds):
        looks.append(seconds)
        shutil.copytree(finished_study.runs, runs, dirs_exist_ok=True)

    monkeypatch.setattr(module.time, "sleep", finish)
    console = Console(width=100, force_terminal=True, record=True, file=io.StringIO())
    show_status(lambda: states(plan, runs), "Mini", console)
    assert len(looks) == 1
    assert "4 done of 4 runs" in console.export_text()


# Paces and time limits


@pytest.fixture
def tasks(tmp_path):
    plan = list(load_study(str(write_mini(tmp_path))).runs())
    return find_tasks(plan, tmp_path / "runs", CPU, [])


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def pace(task, *places, device=CPU):
    return Paces(places, device).epoch_seconds(task.planned, task.run.config)[0]


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
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    runs = first.run.folder.parent
    write_history(first.run, earlier, ago=600)
    other = replace(first.run.config, seed=7, epochs=9)
    write_history(Run.of(other, runs), now)
    write_history(Run.of(replace(other, batch_size=32), runs), [1000.0] * 5)
    assert pace(second, runs) == expected


def test_runs_come_before_archives_and_what_another_device_trained_does_not_count(tasks, tmp_path):
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    archived = Run.of(replace(first.run.config, seed=7), tmp_path / "results")
    places = [first.run.folder.parent, tmp_path / "results"]
    table = 60 / 5 * training_minutes("dnn", second.planned.config)
    write_history(archived, [3.0] * 5, ago=1)
    run_folder.write_provenance(archived.folder, {"device": "NVIDIA H200"})
    assert pace(second, *places) == pytest.approx(table)
    write_history(archived, [3.0] * 5)
    run_folder.write_provenance(archived.folder, {"device": "cpu"})
    assert pace(second, *places) == 3.0
    write_history(first.run, [2.0] * 5, ago=600)
    assert pace(second, *places) == 2.0
    write_history(first.run, [2.0] * 5, ago=500)
    (first.run.folder / "config.json").write_text("{")
    assert pace(second, *places) == 3.0


def test_a_run_fits_if_its_epochs_its_evaluation_and_a_reserve_do(tasks, clock):
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    write_history(first.run, [30.0, 10.0, 10.0, 10.0, 10.0])
    budget = Budget(2, [first.run.folder.parent], CPU)
    expected = RESERVE * (50 + 60 * evaluation_minutes(second.planned))
    assert budget.seconds(second) == pytest.approx(expected)
    clock[0] = 120 - expected - 0.1
    assert budget.fits(second)
    clock[0] += 0.2
    assert not budget.fits(second)


def test_an_accelerator_needs_time_to_start_and_one_that_is_not_here_has_no_measured_pace(tasks, monkeypatch):
    """As in a dry run for another machine."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    write_history(tasks[0].run, [1000.0] * 5)
    run_folder.write_provenance(tasks[0].run.folder, {"device": "NVIDIA H200"})
    there = Budget(2, [tasks[0].run.folder.parent], torch.device("cuda")).seconds(tasks[0])
    assert there == pytest.approx(RESERVE * 60 * (1 + estimate([tasks[0].planned]).minutes))


def test_only_members_and_companions_that_are_not_trained_count(tmp_path, monkeypatch):
    text = MINI.replace('["dnn", "regmixup"]', '["deep-ensemble"]').replace("[0, 1]", "[0]")
    (task,) = find_tasks(list(load_study(str(write_mini(tmp_path, text))).runs()), tmp_path / "runs", CPU, [])
    *trained, last = task.run.members()
    companion = Run.of(replace(last.config, train_set="digits/val"), tmp_path / "runs")
    for run in (*trained, companion):
        write_history(run, [30.0, 10.0, 10.0, 10.0, 10.0])
    done = {run.folder for run in trained}
    monkeypatch.setattr(Run, "finished", property(lambda run: run.folder in done))
    paces = Paces([tmp_path / "runs"], CPU)
    evaluation = evaluation_minutes(task.planned)
    for more, models in ((None, 1), (companion, 2)):
        left = estimate([replace(task, companion=more)], paces)
        assert (left.networks, left.minutes) == (models, pytest.approx(models * 50 / 60 + evaluation))
    done.add(companion.folder)
    assert estimate([replace(task, companion=companion)], paces).networks == 1


@pytest.mark.parametrize("weights", [True, False])
def test_epochs_that_are_trained_do_not_count_unless_their_weights_are_gone(tasks, weights):
    write_history(tasks[0].run, [30.0, 10.0, 10.0])
    if weights:
        tasks[0].run.checkpoint.touch()
    paces = Paces([tasks[0].run.folder.parent], CPU)
    training = estimate([tasks[0]], paces).minutes - evaluation_minutes(tasks[0].planned)
    assert training == pytest.approx((20 if weights else 50) / 60)


def test_a_run_of_unknown_pace_is_begun_before_the_end_alone(tasks, clock, monkeypatch):
    monkeypatch.setattr(module, "training_minutes", lambda *_: None)
    budget = Budget(1, [], CPU)
    assert all(budget.fits(task) for task in tasks)
    clock[0] = 60.0
    assert not any(budget.fits(task) for task in tasks)
    with pytest.raises(ValueError, match="minutes must be a finite number >= 0, got -1"):
        Budget(-1, [], CPU)
