"""One process per device; each takes the next run when it is done with one."""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait

import torch

from regmixup.study.launchers.schedule import Progress
from regmixup.study.launchers.tasks import RETRIES, Job, Outcome, Task, attempt
from regmixup.training.config import check_present, choose_device
from regmixup.training.stopping import Interrupted


def all_devices() -> tuple[str, ...]:
    """Every accelerator that this process sees."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        raise ValueError("devices must be named, such as cpu cpu: there is no accelerator here that `all` could mean")
    return tuple(f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count()))


class Processes:
    """The launcher for several devices of one machine. devices: such as ("cuda:0", "cuda:1"), or ("cpu", "cpu").

    The processes share this one's threads: with n devices each computes on its CPU with 1/n of them.
    """

    def __init__(self, devices: Sequence[str | torch.device]) -> None:
        self.devices = [choose_device(device) for device in devices]
        if len({device.type for device in self.devices}) != 1:
            names = ", ".join(map(str, self.devices)) or "none"
            raise ValueError(f"devices must be one or more of the same kind: it decides the precision, got {names}")
        repeated = [name for name, count in Counter(self.devices).items() if count > 1 and name.type != "cpu"]
        if repeated:
            raise ValueError(f"devices must name each accelerator once, got {repeated[0]} more than once")

    @property
    def device(self) -> torch.device:
        return self.devices[0]

    @contextmanager
    def open(self, job: Job, progress: Progress | None) -> Iterator[_Workers]:
        for device in self.devices:
            check_present(device)
        workers = _Workers(job, self.devices)
        try:
            yield workers
        finally:
            workers.stop()


class _Workers:
    """Processes are started with their first run, and again when one is lost."""

    def __init__(self, job: Job, devices: Sequence[torch.device]) -> None:
        self.job = job
        self.threads = max(1, torch.get_num_threads() // len(devices))
        self.without_worker = list(devices)
        self.idle: list[_Worker] = []
        self.busy: dict[_Worker, Task] = {}
        self.losses: Counter[int] = Counter()

    def has_room(self) -> bool:
        return bool(self.idle or self.without_worker)

    def submit(self, task: Task) -> None:
        worker = self.idle.pop() if self.idle else _Worker(self.job, self.without_worker.pop(0), self.threads)
        self.busy[worker] = task
        with suppress(BrokenPipeError):  # it has died, which `wait` will see
            worker.connection.send(task)

    def wait(self, seconds: float) -> list[Outcome]:
        ended = []
        heard = wait([worker.connection for worker in self.busy], seconds)
        for worker in [worker for worker in self.busy if worker.connection in heard]:
            task = self.busy.pop(worker)
            try:
                ended.append(worker.connection.recv())
                self.idle.append(worker)
            except (EOFError, ConnectionResetError):
                worker.leave()
                self.without_worker.append(worker.device)
                self.losses[task.index] += 1
                if self.losses[task.index] <= RETRIES:
                    code = worker.process.exitcode
                    warnings.warn(f"the process of {task.label} ended with exit code {code}: tried again", stacklevel=2)
                    self.submit(task)
                else:
                    ended.append(self._lost(task, worker.process.exitcode))
        return ended

    def _lost(self, task: Task, code: int | None) -> Outcome:
        error = f"its process ended {self.losses[task.index]} times without a word, at last with exit code {code}"
        task.fail(f"{error}. A negative code is a signal's: -9 is often the system, short of memory\n")
        return Outcome(task=task, error=error)

    def stop(self) -> None:
        """End every process. A run that is under way saves a checkpoint first."""
        workers = [*self.idle, *self.busy]
        for worker in workers:  # all are told before any is waited for, and once: the second time they end at once
            worker.process.terminate()
        for worker in workers:
            worker.leave()


class _Worker:
    """A process on one device, and the line to it."""

    def __init__(self, job: Job, device: torch.device, threads: int) -> None:
        # Not forked: neither CUDA nor torch's threads survive that. Not a daemon: it may need processes that load data.
        context = multiprocessing.get_context("spawn")
        self.device = device
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, job, device, threads))
        self.process.start()
        theirs.close()  # so that the line ends when the process does

    def leave(self) -> None:
        """Wait for its end."""
        self.connection.close()
        self.process.join()


def _work(connection: Connection, job: Job, device: torch.device, threads: int) -> None:
    """Carry out what comes in, until the line ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the first process decides
    torch.set_num_threads(threads)
    if device.index is not None and device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError, Interrupted):
        while True:
            connection.send(attempt(job, connection.recv(), device))
