"""A study's time limit: what a run is expected to take, from histories, the cost table, and what was learned."""

import errno
import os
import time
from dataclasses import replace

import pytest
import torch
from regmixup.study.cost import estimate, evaluation_minutes, kind_of, training_minutes

from regmixup import run_folder
from regmixup.config import encode
from regmixup.run_folder import HISTORY, write_config, write_provenance
from regmixup.storage import write_rows
from regmixup.study import cost
from regmixup.study import status as module
from regmixup.study.plan import load_study
from regmixup.study.runner import _tasks
from regmixup.study.status import Budget, run_status
from regmixup.study.tasks import Job, Task, TaskOutcome, find_tasks
from regmixup.training.run import Run
from tests.study.mini import MINI, write_mini

CPU = torch.device("cpu")


@pytest.fixture
def tasks(tmp_path):
    study = load_study(str(write_mini(tmp_path)))
    return _tasks(Job(study=study, runs=tmp_path / "runs", root=None, workers=None), CPU)


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def places(tasks):
    return [tasks[0].run.folder.parent]


def write_history(run, seconds, ago=0):
    """ago: the seconds since its last epoch."""
    write_config(run.folder, encode(run.config))
    records = [{"epoch": i, "loss": 1.0, "seconds": s} for i, s in enumerate(seconds, start=1)]
    run_folder.write_history(run.folder, records)
    os.utime(run.folder / HISTORY, (time.time() - ago,) * 2)


def test_the_pace_of_runs_alike_decides(tasks, clock):
    """Five epochs of 10 s and 20 s more before the first step: of this method's first seed, hence of its second."""
    write_history(tasks[0].run, [30.0, 10.0, 10.0, 10.0, 10.0])
    budget = Budget(2, places(tasks), CPU)
    second = next(task for task in tasks if task.label == "dnn seed 1")
    evaluation = budget.forecast(second).seconds - 70.0
    assert 0 < evaluation < 5  # from the cost table
    clock[0] = 120 - 1.1 * (70 + evaluation) - 0.1
    assert budget.fits(second)
    clock[0] += 0.2
    assert not budget.fits(second)


def test_a_run_that_could_not_be_read_for_a_moment_counts_afterwards(tasks, monkeypatch):
    write_history(tasks[0].run, [3.0, 3.0])

    def fail(folder):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(cost.Run, "open", fail)
        assert not cost.Paces(places(tasks), CPU).alike
    assert len(cost.Paces(places(tasks), CPU).alike) == 1


def test_the_pace_of_an_earlier_companion_decides(tasks, clock):
    """It is trained on other images than any run, so that the runs do not say it."""
    first, second = (
        replace(task, companion=Run(task.run.folder.with_name(f"companion-{task.index}"), config))
        for task in tasks
        if task.label.startswith("dnn")
        for config in [replace(task.run.config, train_set="digits/val")]
    )
    write_history(first.run, [10.0] * 5)
    write_history(first.companion, [1000.0] * 5)
    budget = Budget(2, places([first]), CPU)
    assert 5050 < budget.forecast(second).seconds < 5055


@pytest.mark.parametrize(
    ("earlier", "now", "pace"),
    [
        ([4.2] * 5, [4.2] * 6 + [2.1] * 2, 2.1),
        ([1.1] * 5, [1.1] * 6 + [4.2] * 2, 4.2),
        ([1.1] * 5, [1.1, 1.1, 60.0, 1.1], 1.1),
        ([1.1] * 5, [60.0], 1.1),
        ([4.2, 2.0], [], 2.0),
    ],
    ids=["falling", "rising", "one slow epoch", "compiling", "nothing else trains"],
)
def test_the_last_epochs_of_any_similar_run_decide(tasks, clock, earlier, now, pace):
    """Here a run of another study, which another process trains now."""
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    write_history(first.run, earlier, ago=600)
    other = replace(first.run.config, seed=7, epochs=9)
    write_history(Run.of(other, first.run.folder.parent), now)
    write_history(Run.of(replace(other, batch_size=32), first.run.folder.parent), [1000.0] * 5)
    forecast = Budget(2, places(tasks), CPU).forecast(second)
    assert [model.seconds for model in forecast.models] == [pace]
    status = run_status(second, cost.Paces(places(tasks), CPU))
    assert status.seconds_left == pytest.approx(5 * pace + forecast.evaluation)  # without start and reserve


def test_runs_come_before_archives_and_what_another_device_trained_does_not_count(tasks, clock, tmp_path):
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    archived = Run.of(replace(first.run.config, seed=7), tmp_path / "results")
    write_history(archived, [3.0] * 5)
    everywhere = [*places(tasks), tmp_path / "results"]

    def pace():
        return Budget(2, everywhere, CPU).forecast(second).models[0].seconds

    write_provenance(archived.folder, {"device": "NVIDIA H200"})
    table = 60 / 5 * training_minutes("dnn", second.planned.config)
    cost._look.cache_clear()
    assert pace() == pytest.approx(table)
    write_provenance(archived.folder, {"device": "cpu"})
    cost._look.cache_clear()
    assert pace() == 3.0
    write_history(first.run, [2.0] * 5, ago=600)
    assert pace() == 2.0
    (first.run.folder / "config.json").write_text("{")
    cost._look.cache_clear()
    assert pace() == 3.0


def test_a_gpu_that_is_not_here_has_no_measured_pace(tasks, clock, monkeypatch):
    """As in a dry run for another machine."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    write_history(tasks[0].run, [1000.0] * 5)
    write_provenance(tasks[0].run.folder, {"device": "NVIDIA H200"})
    (model,) = Budget(2, places(tasks), torch.device("cuda")).forecast(tasks[0]).models
    assert model.source == "by the cost table"
    assert (model.start, model.seconds < 1) == (60.0, True)


def test_only_members_and_companions_that_are_not_trained_count(tmp_path, clock, monkeypatch):
    text = MINI.replace('["dnn", "regmixup"]', '["deep-ensemble"]').replace("[0, 1]", "[0]")
    (task,) = find_tasks(list(load_study(str(write_mini(tmp_path, text))).runs()), tmp_path / "runs", CPU, [])
    *trained, last = task.run.members()
    companion = Run.of(replace(last.config, train_set="digits/val"), tmp_path / "runs")
    for run in (*trained, companion):
        write_history(run, [30.0, 10.0, 10.0, 10.0, 10.0])
    done = {run.folder for run in trained}
    monkeypatch.setattr(Run, "finished", property(lambda run: run.folder in done))
    budget = Budget(2, places([task]), CPU)
    for more, models in ((None, [last]), (companion, [last, companion])):
        forecast = budget.forecast(replace(task, companion=more))
        assert [model.config for model in forecast.models] == [run.config for run in models]
        assert forecast.seconds == pytest.approx(len(models) * (20 + 50) + forecast.evaluation)
    done.add(companion.folder)
    whole = replace(task, companion=companion)
    assert [model.config for model in budget.forecast(whole).models] == [last.config]
    assert estimate([whole]).networks == 1
    fresh = replace(whole, run=replace(task.run, folder=tmp_path / "elsewhere" / "ensemble"), companion=None)
    assert budget.forecast(fresh).start == 20  # five members of one kind are compiled once


def test_a_refusal_names_all_that_the_shortest_task_is_judged_by(tasks, clock, tmp_path):
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    write_history(first.run, [60.0, 20.0, 36.4, 36.4])
    budget = Budget(3, places(tasks), CPU)
    assert not budget.fits(second)
    clock[0] = -100.0
    assert budget.fits(second)
    assert budget.refusal([second]) == ""
    clock[0] = 0.0
    assert budget.forecast(second).seconds == pytest.approx(5 * 36.4 + 40 + 60 * evaluation_minutes(second.planned))
    longer = replace(second, companion=Run(tmp_path / "companion", second.run.config))
    assert budget.refusal([longer, second]) == (
        f"about 247 s: dnn seed 1, 5 epochs of 36 s (as measured in {first.run.folder}), 40 s to start, 3 s of "
        "evaluation and a reserve of 22 s, while 180 s were left"
    )


def test_what_a_run_has_behind_it_does_not_count(tasks, clock):
    write_history(tasks[0].run, [30.0, 10.0, 10.0])
    tasks[0].run.checkpoint.touch()
    budget = Budget(2, places(tasks), CPU)
    whole = replace(tasks[0], run=replace(tasks[0].run, folder=tasks[0].run.folder.with_name("other")))
    assert budget.forecast(whole).seconds - budget.forecast(tasks[0]).seconds == pytest.approx(3 * 10)


def test_compilation_is_paid_once_and_evaluation_is_learned(tasks, clock):
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    write_history(first.run, [30.0, 10.0, 10.0, 10.0, 10.0])
    budget = Budget(10, places(tasks), CPU)
    before = budget.forecast(second).seconds
    budget.learn(TaskOutcome(task=first, rows=[]), 999.0)  # the first of its kind: what it took includes compiling
    assert budget.forecast(second).seconds == pytest.approx(before - 20)
    write_history(second.run, [10.0] * 5)
    budget.learn(TaskOutcome(task=second, rows=[]), 57.0)
    fresh = replace(second, run=replace(second.run, folder=second.run.folder.with_name("fresh")))
    assert budget.forecast(fresh).seconds == pytest.approx(50 + 7)


def test_every_process_compiles_for_itself(tasks, clock):
    """What its first run took, start included, says nothing about the evaluation of the next."""
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    write_history(first.run, [30.0, 10.0, 10.0, 10.0, 10.0])
    budget = Budget(10, places(tasks), CPU)
    budget.learn(TaskOutcome(task=first, rows=[], process=1), 999.0)
    assert budget.forecast(second).start == 0  # the process that is known is the one that is free
    archived = replace(first, archive=first.run.folder)
    budget.learn(TaskOutcome(task=archived, rows=[], process=2), 0.1)
    assert budget.forecast(second).start == 20
    budget.learn(TaskOutcome(task=first, rows=[], process=2), 999.0)
    assert budget.forecast(second).start == 0
    assert budget.evaluating == []


def test_what_is_done_always_fits_and_what_failed_teaches_nothing(tasks, clock):
    budget = Budget(0, places(tasks), CPU)
    assert not budget.fits(tasks[0])
    budget.learn(TaskOutcome(task=tasks[0], error="failed"), 5.0)
    assert not budget.begun
    assert budget.fits(replace(tasks[0], archive=tasks[0].run.folder))
    write_rows(tasks[0].run.folder / f"rows-{tasks[0].planned.stem}.csv", [])
    assert not budget.fits(tasks[0])  # rows, but no weights


def test_what_was_done_before_neither_compiles_nor_says_how_long_an_evaluation_takes(tasks, clock, monkeypatch):
    """Rows that are only read take no time, and epochs of an earlier command are no part of this one's."""
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    write_history(first.run, [30.0, 10.0, 10.0, 10.0, 10.0])
    budget = Budget(10, places(tasks), CPU)
    before = budget.forecast(second).seconds
    for is_done in (True, False):  # read, and trained before but evaluated now
        monkeypatch.setattr(Task, "done", is_done)
        assert budget.fits(first)
        budget.learn(TaskOutcome(task=first, rows=[]), 0.1)
        budget.learn(TaskOutcome(task=first, rows=[]), 0.1)
        assert budget.forecast(second).seconds == before
    budget.begun[0].add(kind_of(first.run.config))
    budget.learn(TaskOutcome(task=first, rows=[]), 40.0)
    assert budget.evaluating == [40.0]


def test_a_task_whose_companion_another_one_trains_says_nothing_about_evaluation(tasks, clock):
    """Else 50 s of training and 7 s of evaluation, beside 50 s of another task, would seem to need no evaluation."""
    task, other = (task for task in tasks if task.label.startswith("dnn"))
    task = replace(task, companion=other.run)
    budget = Budget(10, places(tasks), CPU)
    budget.begun[0] = {kind_of(task.run.config)}
    assert budget.fits(task)
    write_history(task.run, [10.0] * 5)
    write_history(other.run, [10.0] * 5)
    budget.learn(TaskOutcome(task=task, rows=[]), 57.0)
    assert budget.evaluating == []
    run_folder.write_history(task.run.folder, [])
    assert budget.fits(task)
    write_history(task.run, [10.0] * 5)
    budget.learn(TaskOutcome(task=task, rows=[]), 57.0)
    assert budget.evaluating == [7.0]


def test_minutes_are_checked(tasks):
    with pytest.raises(ValueError, match="minutes must be a finite number >= 0, got -1"):
        Budget(-1, places(tasks), CPU)


def test_a_run_of_unknown_pace_is_begun_before_the_end_alone(tasks, clock, monkeypatch):
    monkeypatch.setattr(cost, "training_minutes", lambda *_: None)
    monkeypatch.setattr(module, "evaluation_minutes", lambda *_: None)
    budget = Budget(1, places(tasks), CPU)
    assert all(budget.fits(task) for task in tasks)
    clock[0] = 60.0
    assert not any(budget.fits(task) for task in tasks)


def test_the_history_of_a_run_without_weights_is_no_progress(tasks, clock):
    write_history(tasks[0].run, [10.0] * 5)
    assert Budget(1, places(tasks), CPU).forecast(tasks[0]).seconds > 50
