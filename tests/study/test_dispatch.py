"""Tasks: which one starts next, what happens to those that others hold, and what a display is told."""

import re
from dataclasses import replace

import pytest

from regmixup import plugins
from regmixup.run_folder import write_history
from regmixup.storage import owning
from regmixup.study import dispatch as module
from regmixup.study.dispatch import dispatch
from regmixup.study.planned_run import Evaluation, PlannedRun
from regmixup.study.tasks import StudyJob, Task, TaskOutcome, attempt, find_tasks
from regmixup.training.config import configure
from regmixup.training.engine import choose_device
from regmixup.training.run import Run


def plan(runs, *lines):
    """Tasks for lines such as "dnn 0": a method and a seed."""
    tasks = []
    for index, line in enumerate(lines):
        method, seed = line.split()
        config = configure("digits", method, seed=int(seed))
        planned = PlannedRun(
            method=method, config=config, recipe="digits", label=method, evaluate=Evaluation(test="digits/test")
        )
        tasks.append(Task(index=index, title=line, planned=planned, run=Run(runs / config.name, config)))
    return tasks


class Recorder:
    """A pool that ends one task at a time, the oldest, and keeps what ran together."""

    def __init__(self, room=10, in_use=()):
        self.room, self.in_use = room, list(in_use)
        self.running, self.together = [], []

    def has_room(self):
        return len(self.running) < self.room

    def submit(self, task):
        self.running.append(task)

    def wait(self, seconds):
        if not self.running:
            return []
        self.together.append([task.title for task in self.running])
        task = self.running.pop(0)
        if task.title in self.in_use:
            self.in_use.remove(task.title)
            return [TaskOutcome(task=task, held=f"{task.title} is in use by pid 7")]
        return [TaskOutcome(task=task)]


def test_runs_that_share_a_folder_wait_for_each_other_in_the_order_of_the_plan(tmp_path):
    """The ensemble's members are the plain networks of seeds 0 to 4; the Laplace approximation has that of its seed."""
    tasks = plan(tmp_path, "dnn 0", "deep-ensemble 0", "kfac-llla 0", "dnn 1", "regmixup 0", "dnn 5")
    pool = Recorder()
    ended = [outcome.task.title for outcome in dispatch(tasks, pool)]
    assert pool.together == [
        ["dnn 0", "regmixup 0", "dnn 5"],
        ["regmixup 0", "dnn 5", "deep-ensemble 0"],
        ["dnn 5", "deep-ensemble 0"],
        ["deep-ensemble 0"],
        ["kfac-llla 0", "dnn 1"],
        ["dnn 1"],
    ]
    assert sorted(ended) == sorted(task.title for task in tasks)


def test_runs_that_share_only_a_companion_go_on_at_once(tmp_path):
    """The first to come trains it; the others need it when they are trained themselves."""
    companion = plan(tmp_path, "dnn 7")[0].run
    tasks = [replace(task, companion=companion) for task in plan(tmp_path, "dnn 0", "dnn 1", "dnn 2")]
    pool = Recorder()
    assert len(list(dispatch(tasks, pool))) == 3
    assert pool.together[0] == ["dnn 0", "dnn 1", "dnn 2"]
    assert [len(task.models()) for task in tasks] == [2, 2, 2]


def test_a_run_that_another_process_holds_is_tried_again_until_it_is_free(tmp_path):
    pool = Recorder(room=1, in_use=["dnn 0", "dnn 0"])
    with pytest.warns(UserWarning, match="dnn 0 waits: dnn 0 is in use by pid 7") as said:
        ended = [outcome.task.title for outcome in dispatch(plan(tmp_path, "dnn 0", "dnn 1"), pool)]
    assert ended == ["dnn 1", "dnn 0"]
    assert len(said) == 1, "once, not every time"


class Plenty:
    """A time limit that leaves time for everything."""

    def fits(self, task):
        return True


def test_with_a_time_limit_what_others_hold_is_left_to_them(tmp_path):
    """Tried again when others end; what shares a folder with it is tried, too."""
    pool = Recorder(room=1, in_use=["dnn 0"] * 2)
    ended = list(dispatch(plan(tmp_path, "dnn 0", "dnn 1"), pool, budget=Plenty()))
    assert [outcome.task.title for outcome in ended] == ["dnn 1"]
    assert pool.together == [["dnn 0"], ["dnn 1"], ["dnn 0"]]
    pool = Recorder(room=1, in_use=["dnn 0"])  # and free the second time
    assert len(list(dispatch(plan(tmp_path, "dnn 0", "dnn 1"), pool, budget=Plenty()))) == 2


def test_a_run_that_was_too_long_is_asked_about_again_when_others_have_ended(tmp_path):
    """Others on the same device slowed it; alone it fits. What never does ends the loop."""
    pool = Recorder()

    class Shared:
        def fits(self, task):
            return task.title != "dnn 3" and len(pool.running) < 2

    ended = dispatch(plan(tmp_path, "dnn 0", "dnn 1", "dnn 2", "dnn 3"), pool, budget=Shared())
    assert [outcome.task.title for outcome in ended] == ["dnn 0", "dnn 1", "dnn 2"]
    assert pool.together == [["dnn 0", "dnn 1"], ["dnn 1", "dnn 2"], ["dnn 2"]]


def test_a_machine_that_does_not_see_the_runs_folder_says_so_and_writes_nothing(tmp_path):
    (task,) = plan(tmp_path / "elsewhere", "dnn 0")
    job = StudyJob(runs=tmp_path / "elsewhere")
    assert "storage that all machines share" in attempt(job, task, choose_device("cpu")).error
    assert not list(tmp_path.iterdir())


def test_a_process_that_loads_a_changed_plugin_does_not_train_another_run_in_silence(tmp_path, monkeypatch, forget):
    """Such as a worker that Ray starts hours after the user edited the plugin: its run would be in no table."""
    monkeypatch.chdir(tmp_path)
    plugin = tmp_path / "mine.py"
    network = "lambda num_classes: nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))"
    plugin.write_text(f"import regmixup as rm\nfrom torch import nn\nrm.networks.register('flat', {network})\n")
    plugins.load([str(plugin)])
    config = configure("digits", "dnn", network="flat", epochs=1)
    evaluate = Evaluation(test="digits/test")
    planned = PlannedRun(method="dnn", config=config, recipe="digits", label="dnn", evaluate=evaluate)
    (task,) = find_tasks([planned], tmp_path, choose_device("cpu"), [])
    forget()
    plugin.write_text(plugin.read_text() + "# changed\n")
    outcome = attempt(StudyJob(runs=tmp_path), task, choose_device("cpu"))
    message = "plugins must be as when the study began, got another source of flat: start it again .*Ray.* notebook"
    assert re.search(message, outcome.error)
    assert not list(tmp_path.glob("*/checkpoint.safetensors"))


def test_the_epochs_of_an_ensemble_are_counted_through_its_members(tmp_path):
    (task,) = plan(tmp_path, "deep-ensemble 0")
    assert task.epochs() == 5 * task.run.config.epochs
    for member in task.run.members()[:2]:
        member.folder.mkdir()
        write_history(member.folder, [{"epoch": 1, "loss": 1.0}, {"epoch": 2, "loss": 0.5}])
    assert [record["epoch"] for record in task.history()] == [1, 2, 3, 4]


def test_a_display_is_told_what_the_run_folders_say(tmp_path):
    """Only of runs whose folder somebody holds: the others are still in a queue."""
    started, queued = plan(tmp_path, "dnn 0", "dnn 1")
    told = []

    class Display:
        def begin(self, label, epochs):
            told.append((label, epochs))

        def epoch(self, label, record):
            told.append((label, record["loss"]))

        def end(self, label, note):
            told.append((label, note))

    class Slow(Recorder):
        looks = 0

        def wait(self, seconds):
            self.looks += 1
            return super().wait(seconds) if self.looks > 1 else []

    with owning(started.run.folder):
        write_history(started.run.folder, [{"epoch": 1, "loss": 0.25}])
        list(dispatch([started, queued], Slow(), Display()))
    dispatched = TaskOutcome(task=queued, error="ValueError: no")
    module._show_end(Display(), dispatched)
    assert told[:2] == [("dnn 0", started.run.config.epochs), ("dnn 0", 0.25)]
    assert told[2:] == [
        ("dnn 0", "loss 0.250"),
        ("dnn 1", "finished, without a history"),
        ("dnn 1", "failed: ValueError: no"),
    ]
