"""Dispatch: which task of a study starts next, and what to do with tasks that other processes work on."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from regmixup.run_folder import describe, read_history
from regmixup.storage import is_held
from regmixup.study.cost import Budget
from regmixup.study.tasks import Job, Task, TaskOutcome
from regmixup.training.reporting import EpochRecord

POLL_SECONDS = 0.5
"""Time between two looks at the run folders."""
RETRY_SECONDS = 2.0
"""Time until a folder that another process holds is tried again."""


class Progress(Protocol):
    """A display of runs. begin: add a run, or do nothing if it is there already.

    hooks: the same, and return the callbacks of a run that this process trains.
    """

    def begin(self, label: str, epochs: int) -> None: ...
    def hooks(self, label: str, epochs: int) -> dict[str, Any]: ...
    def epoch(self, label: str, record: EpochRecord) -> None: ...
    def end(self, label: str, note: str) -> None: ...


class Pool(Protocol):
    """Executes tasks."""

    def has_room(self) -> bool:
        """Return whether a task would start now."""

    def submit(self, task: Task) -> None:
        """Start a task."""

    def wait(self, seconds: float) -> list[TaskOutcome]:
        """Wait at most so many seconds; return what has ended."""

    def close(self) -> None:
        """Stop what still runs."""


class Launcher(Protocol):
    """Where runs are executed. device: its kind decides their precision and so their folders."""

    @property
    def device(self) -> torch.device: ...

    def open(self, job: Job, progress: Progress | None) -> Pool:
        """Open a pool to submit to."""


def dispatch(
    tasks: Sequence[Task], pool: Pool, progress: Progress | None = None, budget: Budget | None = None
) -> Iterator[TaskOutcome]:
    """Yield the outcome of every task as it ends.

    Tasks that share a folder never run at once, and keep their order in the plan. Without a budget, a task whose folder
    another process holds is tried until that process ends, so it is taken over if the other is killed. With a budget,
    such a task and one that does not fit are put aside, and tried again when another task ends: it may have trained the
    companion that they need, and the fewer share a device, the faster they are. They may end without an outcome.
    """
    waiting, running, aside = list(tasks), list[Task](), list[Task]()
    not_before: dict[int, float] = {}
    while waiting or running:
        while pool.has_room() and (task := _next(waiting, running, not_before)):
            waiting.remove(task)
            if budget is None or budget.fits(task):
                running.append(task)
                pool.submit(task)
            else:
                aside.append(task)
        for outcome in pool.wait(POLL_SECONDS):
            task = next(task for task in running if task.index == outcome.task.index)
            running.remove(task)
            if outcome.held and budget is not None:
                aside.append(task)
            elif outcome.held:
                if task.index not in not_before:
                    warnings.warn(f"{task.label} waits: {outcome.held}", stacklevel=2)
                not_before[task.index] = time.monotonic() + RETRY_SECONDS
                waiting = _in_order([*waiting, task])
            else:
                waiting, aside = _in_order([*waiting, *aside]), []
                _show_end(progress, outcome)
                yield outcome
        _show_running(progress, running)


def _in_order(tasks: Sequence[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: task.index)


def _next(waiting: Sequence[Task], running: Sequence[Task], not_before: dict[int, float]) -> Task | None:
    """Return the first task that shares no folder with a running one, nor with a waiting one before it."""
    taken = {folder for task in running for folder in task.folders}
    now = time.monotonic()
    for task in waiting:
        if taken.isdisjoint(task.folders) and not_before.get(task.index, now) <= now:
            return task
        taken |= task.folders
    return None


def _show_running(progress: Progress | None, running: Sequence[Task]) -> None:
    """Tell a display what the run folders say. A run that no process holds may still be queued."""
    for task in running:
        if progress is not None and is_held(task.run.folder):
            progress.begin(task.label, task.epochs())
            if history := task.history():
                progress.epoch(task.label, history[-1])


def _show_end(progress: Progress | None, outcome: TaskOutcome) -> None:
    if progress is not None:
        failed, source = outcome.rows is None, outcome.task.source
        progress.end(outcome.task.label, f"failed: {outcome.error}" if failed else describe(read_history(source)))
