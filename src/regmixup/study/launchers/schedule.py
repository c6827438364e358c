"""Which run is started next. Runs that share a folder never run at once, and keep their order in the plan."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from regmixup.progress import describe
from regmixup.storage import is_owned
from regmixup.study.launchers.tasks import Job, Outcome, Task
from regmixup.training.engine import Execution
from regmixup.training.reporting import EpochRecord, StepRecord

if TYPE_CHECKING:
    from regmixup.study.budget import Budget

LOOK = 0.5
"""Seconds between two looks at the run folders."""
AGAIN = 2.0
"""Seconds until a folder that another process holds is asked for again."""
PATIENCE = 24 * 3600.0
"""Seconds after which a folder that the same process still holds is given up."""


class Progress(Protocol):
    """What a display is told while a study runs."""

    def begin(self, label: str, epochs: int) -> None: ...
    def start(self, execution: Execution) -> None: ...
    def step(self, label: str, record: StepRecord) -> None: ...
    def epoch(self, label: str, record: EpochRecord) -> None: ...
    def end(self, label: str, note: str) -> None: ...


class Pool(Protocol):
    """Carries out tasks."""

    def has_room(self) -> bool:
        """Whether a task would be taken now."""

    def submit(self, task: Task) -> None:
        """Take a task."""

    def wait(self, seconds: float) -> list[Outcome]:
        """What has ended, after at most so many seconds."""


class Launcher(Protocol):
    """Where runs go. device: the kind of device they use, which decides their precision and so their folders."""

    @property
    def device(self) -> torch.device: ...

    def open(self, job: Job, progress: Progress | None) -> AbstractContextManager[Pool]:
        """A pool to submit to; leaving it stops what still runs."""


class Patience:
    """Waiting for one folder that another process holds: says for whom, and ends after PATIENCE seconds."""

    def __init__(self, holder: str = "") -> None:
        """holder: whom the user has been told of already."""
        self.holder, self.since = holder, time.monotonic()

    def ends(self, label: str, held: str) -> bool:
        """Return whether to give up. held: which folder it is, and by whom and since when it is held."""
        now = time.monotonic()
        if held != self.holder:
            self.holder, self.since = held, now
            warnings.warn(f"{label} waits, at most {PATIENCE / 3600:g} hours: {held}", stacklevel=2)
        return now - self.since >= PATIENCE


def dispatch(
    tasks: Sequence[Task], pool: Pool, progress: Progress | None = None, budget: Budget | None = None
) -> Iterator[Outcome]:
    """Every task's outcome, in the order in which they end; tasks that the budget has no time for have none."""
    waiting, running = list(tasks), list[Task]()
    not_before: dict[int, float] = {}
    begun: dict[int, float] = {}
    patience: dict[int, Patience] = {}
    display = _Display(progress)
    while waiting or running:
        now = time.monotonic()
        while pool.has_room() and (task := _next(waiting, running, not_before, now)):
            waiting.remove(task)
            if budget is not None and not budget.fits(task):
                continue
            running.append(task)
            begun[task.index] = time.monotonic()
            pool.submit(task)
        for outcome in pool.wait(LOOK):
            task = outcome.task
            if budget is not None and not outcome.in_use:
                budget.learn(outcome, time.monotonic() - begun[task.index])
            running = [other for other in running if other.index != task.index]
            if outcome.in_use and patience.setdefault(task.index, Patience()).ends(task.label, outcome.held):
                outcome = replace(outcome, error=f"gave up after {PATIENCE / 3600:g} hours: {outcome.held}")
            if outcome.in_use:
                not_before[task.index] = time.monotonic() + AGAIN
                waiting = sorted([*waiting, task], key=lambda other: other.index)
            else:
                display.end(outcome)
                yield outcome
        display.look(running)


def _next(waiting: Sequence[Task], running: Sequence[Task], not_before: dict[int, float], now: float) -> Task | None:
    """The first task that shares no folder with a running one, nor with one that stands before it and has to wait."""
    taken = {folder for task in running for folder in task.folders}
    for task in waiting:
        if taken.isdisjoint(task.folders) and not_before.get(task.index, now) <= now:
            return task
        taken |= task.folders
    return None


class _Display:
    """Tells a display what the run folders say."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.begun: set[int] = set()

    def look(self, running: Sequence[Task]) -> None:
        """A run is shown from when a process holds its folder: before, it may be in a queue."""
        if self.progress is None:
            return
        for task in running:
            if task.index not in self.begun and is_owned(task.run.folder):
                self.begun.add(task.index)
                self.progress.begin(task.label, task.epochs())
            if task.index in self.begun and (history := task.history()):
                self.progress.epoch(task.label, history[-1])

    def end(self, outcome: Outcome) -> None:
        if self.progress is None:
            return
        note = f"failed: {outcome.error}"
        if outcome.rows is not None:
            note = describe(outcome.task.run.history())
        self.progress.end(outcome.task.label, note)
