"""Runs as Ray tasks, on one machine or a cluster. Ray is imported when a study is launched with it, not before."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from regmixup.config import check_number
from regmixup.study.launchers.schedule import Progress
from regmixup.study.launchers.tasks import RETRIES, Job, Outcome, Task, attempt


@dataclass(frozen=True, kw_only=True)
class RayTasks:
    """The launcher for Ray. A run whose worker or node is lost is tried again, and goes on from its checkpoint.

    address: of a running cluster; default, what RAY_ADDRESS names, else a cluster of this machine alone.
    gpus_per_run: may be a fraction, if several runs fit on one GPU; 0 trains on CPUs.
    cpus_per_run: also the number of threads.
    """

    address: str | None = None
    gpus_per_run: float = 1.0
    cpus_per_run: float = 1.0

    def __post_init__(self) -> None:
        check_number("gpus_per_run", self.gpus_per_run, least=0)
        check_number("cpus_per_run", self.cpus_per_run, above=0)

    @property
    def device(self) -> torch.device:
        """Ray shows each task its own GPU and no other, so that it has no number."""
        return torch.device("cuda" if self.gpus_per_run else "cpu")

    @contextmanager
    def open(self, job: Job, progress: Progress | None) -> Iterator[_RayPool]:
        try:
            import ray
        except ImportError as error:
            raise ValueError("the launcher ray needs Ray: pip install 'regmixup[ray]'") from error
        address = self.address or os.environ.get("RAY_ADDRESS")
        connected = ray.is_initialized()
        if not connected:
            local = {} if address else {"include_dashboard": False}
            ray.init(address=address or "local", log_to_driver=False, **local)
        pool = _RayPool(self, job)
        try:
            if missing := self._missing(ray.cluster_resources()):
                if not address:
                    raise ValueError(missing)
                warnings.warn(f"{missing}; waiting for the cluster to grow", stacklevel=2)
            yield pool
        finally:
            pool.stop()
            if not connected:
                ray.shutdown()

    def _missing(self, resources: dict[str, float]) -> str:
        """What one run needs and Ray does not have, in words."""
        for flag, name in (("gpus_per_run", "GPU"), ("cpus_per_run", "CPU")):
            wanted, present = getattr(self, flag), resources.get(name, 0.0)
            if wanted > present:
                return f"{flag} must be at most {present:g}, which is all that Ray has, got {wanted:g}"
        return ""


class _RayPool:
    """Ray has the queue: whatever may run is submitted at once."""

    def __init__(self, launcher: RayTasks, job: Job) -> None:
        import ray

        self.ray, self.device = ray, launcher.device
        self.threads = max(1, math.floor(launcher.cpus_per_run))
        self.job = ray.put(job)
        shares = {"num_gpus": launcher.gpus_per_run, "num_cpus": launcher.cpus_per_run}
        self.remote = ray.remote(max_retries=RETRIES, **shares)(_attempt)
        self.tasks: dict[Any, Task] = {}

    def has_room(self) -> bool:
        return True

    def submit(self, task: Task) -> None:
        self.tasks[self.remote.remote(self.job, task, self.device, self.threads)] = task

    def wait(self, seconds: float) -> list[Outcome]:
        if not self.tasks:
            time.sleep(seconds)
            return []
        ready, _ = self.ray.wait(list(self.tasks), timeout=seconds)
        return [self._outcome(reference) for reference in ready]

    def _outcome(self, reference: Any) -> Outcome:
        task = self.tasks.pop(reference)
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayError as error:  # lost more often than Ray tries again
            task.fail(f"{error}\n")
            return Outcome(task=task, error=f"{type(error).__name__}: {error}")

    def stop(self) -> None:
        """End every task. A run that is under way keeps its last checkpoint."""
        for reference in self.tasks:
            self.ray.cancel(reference, force=True)


def _attempt(job: Job, task: Task, device: torch.device, threads: int) -> Outcome:
    torch.set_num_threads(threads)
    return attempt(job, task, device)
