"""The state of every run of a study, and which runs still fit into a time limit, from the run folders only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from regmixup import run_folder
from regmixup.config import check_number
from regmixup.data.folders import hash_file
from regmixup.names import counted
from regmixup.storage import is_held
from regmixup.study.cost import ModelLeft, Paces, epochs_of, estimate, evaluation_minutes, kind_of
from regmixup.study.tasks import Task, TaskOutcome

State = Literal["done", "running", "waiting", "failed", "damaged", "unread"]
ORDER: tuple[State, ...] = ("running", "damaged", "unread", "failed", "waiting", "done")
REFUSED: tuple[State, ...] = ("damaged", "unread")
"""The states of a run whose archive cannot be used."""
_REFRESH_SECONDS = 2.0
_MARGIN = 1.1
"""Factor on the expected time of a run."""


@dataclass(frozen=True)
class RunStatus:
    """How far a task is. epoch: finished epochs of all its models, out of `epochs`. seconds_left: None if unknown."""

    task: Task
    state: State
    epoch: int
    epochs: int
    loss: float | None
    seconds_left: float | None
    note: str = ""


def run_status(task: Task, paces: Paces) -> RunStatus:
    """Return the state of a task: done, running while a live process holds the folder, failed, or waiting.

    damaged: an archive that the study would read has changed, so it refuses to. unread: it cannot be read now.
    """
    models, folder = task.models(), task.run.folder
    epochs = sum(model.config.total_epochs for model in models)
    if (kept := task.archive or task.chosen) is not None:
        try:
            run_folder.check_archive(kept, hash_file)  # which reads no unchanged file again
        except (OSError, ValueError) as error:
            state: State = "unread" if isinstance(error, OSError) else "damaged"
            return RunStatus(task, state, 0, epochs, None, None, str(error))
    if task.archive is not None:
        return RunStatus(task, "done", epochs, epochs, None, None)
    records = [record for model in models for record in model.history()]
    state, note, left = "waiting", "", None
    if task.done:
        state = "done"
    elif is_held(folder):
        state = "running"
    elif (failure := run_folder.read_failure(folder)) is not None:
        state, note = "failed", failure.strip().rpartition("\n")[2]
    if state != "done" and (minutes := estimate([task], paces).minutes) is not None:
        left = 60 * minutes
    return RunStatus(task, state, len(records), epochs, records[-1]["loss"] if records else None, left, note)


def status_table(found: Sequence[RunStatus], title: str) -> Group:
    """Lay out the states: running first, done last, then a line of totals."""
    table = Table(title=Text(title), box=None, pad_edge=False, title_justify="left")
    several = len({status.task.planned.recipe for status in found}) > 1
    for name in ("state", "run", *(["recipe"] if several else []), "epoch", "loss", "left", ""):
        right, folded = name in ("epoch", "loss", "left"), name == ""
        overflow: Literal["fold", "ellipsis"] = "fold" if folded else "ellipsis"
        table.add_column(name, justify="right" if right else "left", overflow=overflow, no_wrap=not folded)
    for status in sorted(found, key=lambda status: ORDER.index(status.state)):
        planned = status.task.planned
        cells = [status.state, planned.name, *([planned.recipe] if several else [])]
        cells += [f"{status.epoch}/{status.epochs}", "" if status.loss is None else f"{status.loss:.3f}"]
        cells += ["" if status.state == "done" else shown_time(status.seconds_left), status.note]
        table.add_row(*map(Text, cells))
    counts = Counter(status.state for status in found)
    sums = ", ".join(f"{counts[state]} {state}" for state in reversed(ORDER) if counts[state])
    return Group(table, Text(f"{sums} of {len(found)} runs"))


def shown_time(seconds: float | None) -> str:
    """Return a time in the unit that suits it.

    >>> shown_time(42), shown_time(600), shown_time(9000), shown_time(2e5), shown_time(None)
    ('42 s', '10 min', '2.5 h', '2.3 d', '?')
    """
    if seconds is None:
        return "?"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def show_status(look: Callable[[], list[RunStatus]], title: str, console: Console) -> None:
    """Print the table: live in a terminal until all is done or it is interrupted, once elsewhere.

    look: returns the state of every run as it is now.
    """
    found = look()
    if not console.is_terminal:
        console.print(status_table(found, title), soft_wrap=True)
        return
    with Live(status_table(found, title), console=console, auto_refresh=False) as live:
        while any(status.state != "done" for status in found):
            time.sleep(_REFRESH_SECONDS)
            found = look()
            live.update(status_table(found, title), refresh=True)


@dataclass(frozen=True)
class Forecast:
    """The seconds that a task still takes: to start, to train models and to evaluate."""

    task: Task
    start: float
    models: list[ModelLeft]
    evaluation: float

    @property
    def seconds(self) -> float:
        return self.start + sum(one.epochs * (one.seconds or 0.0) for one in self.models) + self.evaluation

    @property
    def total(self) -> float:
        """Return the seconds with a reserve."""
        return _MARGIN * self.seconds

    def __str__(self) -> str:
        """Name all that a limit is judged by."""
        epochs: Counter[str] = Counter()
        for one in self.models:
            each = "unknown time" if one.seconds is None else f"{one.seconds:.2g} s ({one.source})"
            epochs[each] += round(one.epochs)
        parts = [f"{counted(count, 'epoch')} of {each}" for each, count in epochs.items()]
        parts.append(f"{self.start:.0f} s to start")
        rest = f"{self.evaluation:.0f} s of evaluation and a reserve of {self.total - self.seconds:.0f} s"
        return f"about {self.total:.0f} s: {self.task.label}, {', '.join([*parts, rest])}"


class Budget:
    """A time limit for a study: start no run that would not end within so many minutes from now.

    places: the folders whose runs say how long an epoch takes, that of the runs first, then archives.
    A run whose pace is unknown, both from histories and from `cost.py`, is started all the same.
    """

    def __init__(self, minutes: float, places: Sequence[Path], device: torch.device) -> None:
        check_number("minutes", minutes, least=0)
        self.end = time.monotonic() + 60 * minutes
        self.places, self.device = places, device
        self.evaluating: list[float] = []
        self.begun: dict[int, set[object]] = {}  # by process: the kinds of models that it has compiled
        # By task: seconds of its own epochs and of its companion's before it started; None if it was done.
        self.earlier: dict[int, tuple[float, float] | None] = {}

    def fits(self, task: Task) -> bool:
        """Return whether a task would end in time if it started now; one that is done always does."""
        self.earlier[task.index] = earlier = None if task.done else _trained_seconds(task)
        return earlier is None or self.forecast(task).total < self.end - time.monotonic()

    def refusal(self, tasks: Iterable[Task]) -> str:
        """Describe the shortest of the tasks that do not fit, with all that it is judged by; "" if all fit."""
        left = self.end - time.monotonic()
        refused = [forecast for task in tasks if (forecast := self.forecast(task)).total >= left]
        shortest = min(refused, key=lambda forecast: forecast.total, default=None)
        return f"{shortest}, while {max(0.0, left):.0f} s were left" if shortest is not None else ""

    def forecast(self, task: Task) -> Forecast:
        """Return what is left of a task by the pace that similar runs have now.

        A process compiles a kind of model once. Any of them may be the one that executes the task.
        """
        models = Paces(self.places, self.device).left(task)
        starts = {kind_of(one.config): one.start for one in models}
        compiled = set[object].intersection(*self.begun.values()) if self.begun else set()
        start = sum(seconds for kind, seconds in starts.items() if kind not in compiled)
        evaluation = max(self.evaluating) if self.evaluating else 60 * (evaluation_minutes(task.planned) or 0.0)
        return Forecast(task, start, models, evaluation)

    def learn(self, outcome: TaskOutcome, seconds: float) -> None:
        """Record the time that a task took beyond its epochs, once its code was compiled.

        Not where its companion was trained meanwhile: that may have been another task.
        """
        if outcome.rows is None:
            return
        task, compiled = outcome.task, self.begun.setdefault(outcome.process, set())
        earlier = self.earlier.get(task.index, (0.0, 0.0))
        if task.archive is not None or earlier is None:
            return
        kind, after = kind_of(task.run.config), _trained_seconds(task)
        trained = after[0] - earlier[0]
        if kind in compiled and after[1] == earlier[1]:
            self.evaluating.append(max(0.0, seconds - trained))
        if trained > 0:
            compiled.add(kind)


def _trained_seconds(task: Task) -> tuple[float, float]:
    """Return the seconds of all epochs of a task's own models, and of its companion's."""
    seconds = [sum(epochs_of(one)) for one in task.models()]
    own = task.run.config.members
    return sum(seconds[:own]), sum(seconds[own:])
