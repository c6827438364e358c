"""Launchers: where the runs of a study are executed. Every launcher gives the same rows.

`InTurn` executes one run after the other in this process, `Processes` starts a process per device, `RayTasks` uses a
Ray cluster. Progress is recorded in the run folders only. Each has

    device      the kind of device, which decides the precision of the runs and so their folders
    open        get ready for the tasks of one study
    has_room    return whether a task would start now
    submit      start a task
    wait        wait at most so many seconds, and return what has ended
    close       stop what still runs
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeAlias

import torch

from regmixup.config import Checked, NotNegative, Positive, values_of
from regmixup.run_folder import write_failure
from regmixup.study.tasks import StudyJob, Task, TaskOutcome, attempt
from regmixup.training.engine import check_present, choose_device
from regmixup.training.reporting import Hooks, Record
from regmixup.training.stopping import Interrupted


class Progress(Protocol):
    """A display of runs. begin: add a run, or do nothing if it is there already.

    hooks: the same, and return the callbacks of a run that this process trains.
    """

    def begin(self, label: str, epochs: int) -> None: ...
    def hooks(self, label: str, epochs: int) -> dict[str, Any]: ...
    def epoch(self, label: str, record: Record) -> None: ...
    def end(self, label: str, note: str) -> None: ...


class InTurn:
    """Run one task after the other in this process. device: default, the accelerator if there is one."""

    def __init__(self, device: str | torch.device | None = None) -> None:
        self.device = choose_device(device)

    def open(self, job: StudyJob, progress: Progress | None) -> None:
        check_present(self.device)
        self.job, self.progress = job, progress
        self.ended: list[TaskOutcome] = []

    def has_room(self) -> bool:
        return not self.ended

    def submit(self, task: Task) -> None:
        given = self.progress.hooks(task.title, task.epochs()) if self.progress is not None else {}
        hooks = Hooks.given(*(given.get(name) for name in values_of(Hooks())))
        self.ended.append(attempt(self.job, task, self.device, hooks))

    def wait(self, seconds: float) -> list[TaskOutcome]:
        ended, self.ended = self.ended, []
        if not ended:  # other processes hold all that is left
            time.sleep(seconds)
        return ended

    def close(self) -> None:
        """Do nothing: what was submitted has ended."""


def all_devices() -> tuple[str, ...]:
    """Return every accelerator that this process sees."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        raise ValueError("devices must be named, such as cpu cpu: there is no accelerator here that `all` could mean")
    return tuple(f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count()))


class Processes:
    """Run one process per device of this machine. devices: such as ("cuda:0", "cuda:1"), or ("cpu", "cpu").

    A device that is named several times has as many processes, which share it.
    The processes share this one's threads: each of n gets 1/n of them.
    Each process starts with its first task. If it is lost, that task has failed, and a new one does the others.
    """

    def __init__(self, devices: Sequence[str | torch.device]) -> None:
        self.devices = [choose_device(device) for device in devices]
        if len({device.type for device in self.devices}) != 1:
            names = ", ".join(map(str, self.devices)) or "none"
            raise ValueError(f"devices must be one or more of the same kind: it decides the precision, got {names}")
        self.device = self.devices[0]

    def open(self, job: StudyJob, progress: Progress | None) -> None:
        for device in self.devices:
            check_present(device)
        self.job = replace(job, threads=max(1, torch.get_num_threads() // len(self.devices)))
        self.without_worker = list(self.devices)
        self.idle: list[_Worker] = []
        self.busy: dict[_Worker, Task] = {}

    def has_room(self) -> bool:
        return bool(self.idle or self.without_worker)

    def submit(self, task: Task) -> None:
        worker = self.idle.pop() if self.idle else _Worker(self.job, self.without_worker.pop(0))
        self.busy[worker] = task
        with suppress(BrokenPipeError):  # it has died, which `wait` will see
            worker.connection.send(task)

    def wait(self, seconds: float) -> list[TaskOutcome]:
        ended = []
        answered = wait([worker.connection for worker in self.busy], seconds)
        for worker in [worker for worker in self.busy if worker.connection in answered]:
            task = self.busy.pop(worker)
            try:
                ended.append(worker.connection.recv())
                self.idle.append(worker)
            except (EOFError, ConnectionResetError):
                worker.leave()
                self.without_worker.append(worker.device)
                error = f"its process ended without a word, with exit code {worker.process.exitcode}"
                write_failure(task.run.folder, f"{error}. -9 often means that the system was short of memory\n")
                ended.append(TaskOutcome(task=task, error=error))
        return ended

    def close(self) -> None:
        """Stop every process. A run in progress saves a checkpoint first."""
        workers = [*self.idle, *self.busy]
        for worker in workers:  # signal all before waiting for any, and once: a second signal ends them at once
            worker.process.terminate()
        for worker in workers:
            worker.leave()


class _Worker:
    """A process on one device, and the connection to it."""

    def __init__(self, job: StudyJob, device: torch.device) -> None:
        # Not forked: neither CUDA nor torch's threads survive that. Not a daemon: it may need processes that load data.
        context = multiprocessing.get_context("spawn")
        self.device = device
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, job, device))
        self.process.start()
        theirs.close()  # so that the connection ends with the process

    def leave(self) -> None:
        self.connection.close()
        self.process.join()


def _work(connection: Connection, job: StudyJob, device: torch.device) -> None:
    """Execute incoming tasks until the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal signals all; the parent decides
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # no line of the user's leads here
    if device.index is not None and device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError, Interrupted):
        while True:
            connection.send(attempt(job, connection.recv(), device))


@dataclass(kw_only=True)
class RayTasks(Checked):
    """Run tasks on Ray. A run whose worker or node is lost is retried, and resumes from its checkpoint.

    address: a running cluster; default, what RAY_ADDRESS names, else a cluster of this machine alone.
    gpus_per_run: may be a fraction, if several runs fit on one GPU; 0 trains on CPUs.
    cpus_per_run: also the number of threads.
    Ray is imported when a study is launched with it, not before.
    """

    address: str | None = None
    gpus_per_run: NotNegative = 1.0
    cpus_per_run: Positive = 1.0

    @property
    def device(self) -> torch.device:
        """Return the kind of device; Ray shows each task its own GPU only, so that it has no index."""
        return torch.device("cuda" if self.gpus_per_run else "cpu")

    def open(self, job: StudyJob, progress: Progress | None) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError("the launcher ray needs Ray: pip install 'regmixup[ray]'") from error
        address = self.address or os.environ.get("RAY_ADDRESS")
        if not ray.is_initialized():
            local = {} if address else {"include_dashboard": False}
            ray.init(address=address or "local", log_to_driver=False, **local)
        present = ray.cluster_resources()
        for name, kind in (("gpus_per_run", "GPU"), ("cpus_per_run", "CPU")):
            share, most = getattr(self, name), present.get(kind, 0.0)
            if share > most and not address:  # a cluster may still grow; Ray would wait for this machine for ever
                raise ValueError(f"{name} must be at most {most:g}, which is all that Ray has, got {share:g}")
        self.ray: Any = ray
        self.job = ray.put(replace(job, threads=max(1, math.floor(self.cpus_per_run))))
        shares = {"num_gpus": self.gpus_per_run, "num_cpus": self.cpus_per_run}
        self.remote = ray.remote(max_retries=3, **shares)(attempt)
        self.tasks: dict[Any, Task] = {}

    def has_room(self) -> bool:
        """Return True: Ray has the queue."""
        return True

    def submit(self, task: Task) -> None:
        self.tasks[self.remote.remote(self.job, task, self.device)] = task

    def wait(self, seconds: float) -> list[TaskOutcome]:
        if not self.tasks:
            time.sleep(seconds)
            return []
        ended = []
        ready, _ = self.ray.wait(list(self.tasks), timeout=seconds)
        for reference in ready:
            task = self.tasks.pop(reference)
            try:
                ended.append(self.ray.get(reference))
            except self.ray.exceptions.RayError as error:  # lost more often than Ray retries
                write_failure(task.run.folder, f"{error}\n")
                ended.append(TaskOutcome(task=task, error=f"{type(error).__name__}: {error}"))
        return ended

    def close(self) -> None:
        """Cancel every task. A run in progress keeps its last checkpoint. The connection ends with this process."""
        for reference in self.tasks:
            self.ray.cancel(reference, force=True)


Launcher: TypeAlias = InTurn | Processes | RayTasks
