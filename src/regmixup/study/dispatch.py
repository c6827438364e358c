"""Dispatch: which task of a study starts next, and what to do with tasks that other processes work on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from regmixup.names import warn_user
from regmixup.run_folder import describe_last, read_history
from regmixup.storage import is_held
from regmixup.study.launchers import Launcher, Progress
from regmixup.study.status import Budget
from regmixup.study.tasks import Task, TaskOutcome

POLL_SECONDS = 0.5
"""Time between two looks at the run folders, and until a folder that another process holds is tried again."""


def dispatch(
    tasks: Sequence[Task], launcher: Launcher, progress: Progress | None = None, budget: Budget | None = None
) -> Iterator[TaskOutcome]:
    """Yield the outcome of every task as it ends.

    Tasks that share a folder never run at once, and start in the order of the plan. A task whose folder another process
    holds, or that does not fit a budget, is put aside and tried again when another task ends: that may have trained the
    companion that it needs, and the fewer share a device, the faster they are. Without a budget, it is also tried again
    until the other process ends, so it is taken over if that is killed. With one, it may end without an outcome.
    """
    left = {task.index: task for task in tasks}
    running, aside, warned = set[int](), set[int](), set[int]()
    while running or (left if budget is None else left.keys() - aside):
        while launcher.has_room() and (task := _next(left, running, aside)):
            if budget is None or budget.fits(task):
                running.add(task.index)
                launcher.submit(task)
            else:
                aside.add(task.index)
        outcomes = launcher.wait(POLL_SECONDS)
        for outcome in outcomes:
            index = outcome.task.index
            running.remove(index)
            if outcome.held:
                aside.add(index)
                if budget is None and index not in warned:
                    warn_user(f"{outcome.task.title} waits: {outcome.held}")
                    warned.add(index)
            else:
                del left[index]
                aside.clear()
                _show_end(progress, outcome)
                yield outcome
        if not outcomes and budget is None:
            aside.clear()
        _show_running(progress, [left[index] for index in sorted(running)])


def _next(left: Mapping[int, Task], running: Collection[int], aside: Collection[int]) -> Task | None:
    """Return the first task that shares no folder with a running one, nor with a waiting one before it."""
    taken = {folder for index in running for folder in left[index].folders}
    for index, task in left.items():
        if index not in running and index not in aside:
            if taken.isdisjoint(task.folders):
                return task
            taken |= task.folders
    return None


def _show_running(progress: Progress | None, running: Sequence[Task]) -> None:
    """Tell a display what the run folders say. A run that no process holds may still be queued."""
    for task in running:
        if progress is not None and is_held(task.run.folder):
            progress.begin(task.title, task.epochs())
            if history := task.history():
                progress.epoch(task.title, history[-1])


def _show_end(progress: Progress | None, outcome: TaskOutcome) -> None:
    if progress is not None:
        error, source = outcome.error, outcome.task.source
        progress.end(outcome.task.title, f"failed: {error}" if error else describe_last(read_history(source)))
