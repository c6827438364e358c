"""A time limit for a study: start no run that would not end within it, judged by the time that others took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from regmixup.config import check_number
from regmixup.run_folder import read_provenance, rows_path
from regmixup.storage import is_stored
from regmixup.study.cost import evaluation_minutes, training_minutes
from regmixup.study.tasks import Task, TaskOutcome
from regmixup.training.config import device_name
from regmixup.training.run import Run

_MARGIN = 1.1
"""Factor on the expected time of a run."""
_FIRST = 60.0
"""Seconds before the first step (start, compilation) where nothing is known about them."""


class Budget:
    """A number of minutes from now. tasks: the plan; the histories of its runs say how long an epoch takes.

    A run whose pace is unknown, both from histories and from `cost.py`, is started all the same.
    """

    def __init__(self, minutes: float, tasks: Sequence[Task], device: torch.device) -> None:
        check_number("minutes", minutes, least=0)
        self.end = time.monotonic() + 60 * minutes
        self.tasks, self.device = tasks, device
        self.evaluating: list[float] = []
        self.begun: set[object] = set()

    def fits(self, task: Task) -> bool:
        """Return whether a task would end in time if it started now; one that is done always does."""
        return _is_done(task) or time.monotonic() + _MARGIN * self.seconds(task) < self.end

    def seconds(self, task: Task) -> float:
        """Return the time left for a task: start-up, training and evaluation."""
        training = sum(self._training(task, one) for one in task.models() if not one.finished)
        if self.evaluating:
            return training + max(self.evaluating)
        minutes = evaluation_minutes(task.planned)
        return training + 60 * (minutes if minutes is not None else 0)

    def learn(self, outcome: TaskOutcome, seconds: float) -> None:
        """Record the time that a task took beyond its epochs, once its code was compiled."""
        if outcome.rows is None or outcome.task.archive is not None:
            return
        kind = _kind(outcome.task.run)
        if kind in self.begun:
            self.evaluating.append(max(0.0, seconds - sum(sum(_epochs(one)) for one in outcome.task.models())))
        self.begun.add(kind)

    def _history(self, task: Task) -> list[float]:
        """Return the seconds of a run's epochs; none if it was archived from another kind of device."""
        if task.archive is None:
            return _epochs(task.run)
        if read_provenance(task.archive).get("device") != device_name(self.device):
            return []
        return _epochs(Run(task.archive, task.run.config))

    def _training(self, task: Task, run: Run) -> float:
        """Return the seconds that one model still trains; 0 if its pace is unknown."""
        left = run.config.total_epochs - (len(run.history()) if run.checkpoint.is_file() else 0)
        alike = [self._history(other) for other in self.tasks if _kind(other.run) == _kind(run)]
        measured = [seconds for seconds in alike if len(seconds) > 1]
        if measured:
            pace = median(second for seconds in measured for second in seconds[1:])
            first = max(seconds[0] - pace for seconds in measured)
        else:
            minutes = training_minutes(task.planned.method, run.config)
            if minutes is None:
                return 0.0
            pace, first = 60 * minutes / run.config.total_epochs, _FIRST
        return left * pace + (first if _kind(run) not in self.begun else 0.0)


def _is_done(task: Task) -> bool:
    if task.archive is not None:
        return True
    rows = rows_path(task.run.folder, task.planned.stem)
    return is_stored(rows) and all(model.finished for model in task.models())


def _epochs(run: Run) -> list[float]:
    """Return the seconds of a run's epochs, as far as it has a history."""
    return [record["seconds"] for record in run.history() if "seconds" in record]


def _kind(run: Run) -> Any:
    """Return the fields that decide the time of an epoch."""
    fields = ("objective", "constraint", "head", "network", "train_set", "batch_size", "precision")
    return tuple(getattr(run.config, name) for name in fields)
