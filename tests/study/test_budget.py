"""A study's time limit: what a run is expected to take, from histories, the cost table, and what was learned."""

from dataclasses import replace

import pytest
import torch

from regmixup.storage import write_rows
from regmixup.study import status as module
from regmixup.study.plan import load_study
from regmixup.study.runner import _tasks
from regmixup.study.status import Budget
from regmixup.study.tasks import Job, Task, TaskOutcome
from regmixup.training.run import Run
from tests.study.mini import write_mini

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


def write_history(run, seconds):
    run.write_history([{"epoch": i, "loss": 1.0, "seconds": s} for i, s in enumerate(seconds, start=1)])


def test_the_pace_of_runs_alike_decides(tasks, clock):
    """Five epochs of 10 s and 20 s more before the first step: of this method's first seed, hence of its second."""
    write_history(tasks[0].run, [30.0, 10.0, 10.0, 10.0, 10.0])
    budget = Budget(2, tasks, CPU)
    second = next(task for task in tasks if task.label == "dnn seed 1")
    evaluation = budget.seconds(second) - 70.0
    assert 0 < evaluation < 5  # from the cost table
    clock[0] = 120 - 1.1 * (70 + evaluation) - 0.1
    assert budget.fits(second)
    clock[0] += 0.2
    assert not budget.fits(second)


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
    budget = Budget(2, [first, second], CPU)
    assert 5050 < budget.seconds(second) < 5055


def test_what_a_run_has_behind_it_does_not_count(tasks, clock):
    write_history(tasks[0].run, [30.0, 10.0, 10.0])
    tasks[0].run.checkpoint.touch()
    budget = Budget(2, tasks, CPU)
    whole = replace(tasks[0], run=replace(tasks[0].run, folder=tasks[0].run.folder.with_name("other")))
    assert budget.seconds(whole) - budget.seconds(tasks[0]) == pytest.approx(3 * 10)


def test_compilation_is_paid_once_and_evaluation_is_learned(tasks, clock):
    first, second = (task for task in tasks if task.label.startswith("dnn"))
    write_history(first.run, [30.0, 10.0, 10.0, 10.0, 10.0])
    budget = Budget(10, tasks, CPU)
    before = budget.seconds(second)
    budget.learn(TaskOutcome(task=first, rows=[]), 999.0)  # the first of its kind: what it took includes compiling
    assert budget.seconds(second) == pytest.approx(before - 20)
    write_history(second.run, [10.0] * 5)
    budget.learn(TaskOutcome(task=second, rows=[]), 57.0)
    fresh = replace(second, run=replace(second.run, folder=second.run.folder.with_name("fresh")))
    assert budget.seconds(fresh) == pytest.approx(50 + 7)


def test_what_is_done_always_fits_and_what_failed_teaches_nothing(tasks, clock):
    budget = Budget(0, tasks, CPU)
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
    budget = Budget(10, tasks, CPU)
    before = budget.seconds(second)
    for is_done in (True, False):  # read, and trained before but evaluated now
        monkeypatch.setattr(Task, "done", is_done)
        assert budget.fits(first)
        budget.learn(TaskOutcome(task=first, rows=[]), 0.1)
        budget.learn(TaskOutcome(task=first, rows=[]), 0.1)
        assert budget.seconds(second) == before
    budget.begun.add(module._kind(first.run))
    budget.learn(TaskOutcome(task=first, rows=[]), 40.0)
    assert budget.evaluating == [40.0]


def test_a_task_whose_companion_another_one_trains_says_nothing_about_evaluation(tasks, clock):
    """Else 50 s of training and 7 s of evaluation, beside 50 s of another task, would seem to need no evaluation."""
    task, other = (task for task in tasks if task.label.startswith("dnn"))
    task = replace(task, companion=other.run)
    budget = Budget(10, tasks, CPU)
    budget.begun.add(module._kind(task.run))
    assert budget.fits(task)
    write_history(task.run, [10.0] * 5)
    write_history(other.run, [10.0] * 5)
    budget.learn(TaskOutcome(task=task, rows=[]), 57.0)
    assert budget.evaluating == []
    task.run.write_history([])
    assert budget.fits(task)
    write_history(task.run, [10.0] * 5)
    budget.learn(TaskOutcome(task=task, rows=[]), 57.0)
    assert budget.evaluating == [7.0]


def test_minutes_are_checked(tasks):
    with pytest.raises(ValueError, match="minutes must be a finite number >= 0, got -1"):
        Budget(-1, tasks, CPU)


def test_a_run_of_unknown_pace_is_begun_before_the_end_alone(tasks, clock, monkeypatch):
    for name in ("training_minutes", "evaluation_minutes"):
        monkeypatch.setattr(module, name, lambda *_: None)
    budget = Budget(1, tasks, CPU)
    assert all(budget.fits(task) for task in tasks)
    clock[0] = 60.0
    assert not any(budget.fits(task) for task in tasks)


def test_the_history_of_a_run_without_weights_is_no_progress(tasks, clock):
    write_history(tasks[0].run, [10.0] * 5)
    assert Budget(1, tasks, CPU).seconds(tasks[0]) > 50
