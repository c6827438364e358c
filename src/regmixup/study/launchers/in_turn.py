"""One run after the other, in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from regmixup.study.launchers.schedule import Progress
from regmixup.study.launchers.tasks import Job, Outcome, Task, attempt
from regmixup.training.config import check_present, choose_device
from regmixup.training.train import Hooks


class InTurn:
    """The launcher for one device; default, the accelerator if there is one."""

    def __init__(self, device: str | torch.device | None = None) -> None:
        self.device = choose_device(device)

    @contextmanager
    def open(self, job: Job, progress: Progress | None) -> Iterator[_ThisProcess]:
        check_present(self.device)
        yield _ThisProcess(job, self.device, progress)


class _ThisProcess:
    def __init__(self, job: Job, device: torch.device, progress: Progress | None) -> None:
        self.job, self.device, self.progress = job, device, progress
        self.ended: list[Outcome] = []

    def has_room(self) -> bool:
        return not self.ended

    def submit(self, task: Task) -> None:
        hooks: Hooks = {}
        if self.progress is not None:
            self.progress.begin(task.label, task.epochs())
            hooks = {
                "on_start": self.progress.start,
                "on_step": partial(self.progress.step, task.label),
                "on_epoch": partial(self.progress.epoch, task.label),
            }
        self.ended.append(attempt(self.job, task, self.device, **hooks))

    def wait(self, seconds: float) -> list[Outcome]:
        ended, self.ended = self.ended, []
        if not ended:  # all that is left is held by other processes
            time.sleep(seconds)
        return ended
