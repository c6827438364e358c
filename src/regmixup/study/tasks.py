"""Tasks: what a process or machine is handed, what comes back, and which task starts next."""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import torch

from regmixup import run_folder
from regmixup.config import check_count
from regmixup.run_folder import describe
from regmixup.storage import InUseError, is_owned, owning
from regmixup.study.archive import archived_rows, find_archive, write_archive
from regmixup.study.measure import complete_run
from regmixup.study.plan import Study
from regmixup.study.planned import PlannedRun
from regmixup.training.config import resolve
from regmixup.training.engine import Engine
from regmixup.training.reporting import EpochRecord
from regmixup.training.run import Run
from regmixup.training.train import Hooks
from regmixup.types import Row

if TYPE_CHECKING:
    from regmixup.study.status import Budget

POLL_SECONDS = 0.5
"""Time between two looks at the run folders."""
RETRY_SECONDS = 2.0
"""Time until a folder that another process holds is tried again."""
GIVE_UP_SECONDS = 24 * 3600.0
"""Time after which a folder that the same process still holds is given up."""
RETRIES = 3
"""Retries of a run in one study after its process was lost."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The settings that all runs of a study share. runs: an absolute path that every machine sees.

    archive: a folder for archives of finished runs; an archived run counts as done. logits: archive logits, too.
    """

    study: Study
    runs: Path
    root: Path | None
    workers: int | None
    engine: Engine | None = None
    archive: Path | None = None
    logits: bool = False

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_count("workers", self.workers, least=0)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One planned run. index: its place in the plan. label: its name on displays. run: its folder and config.

    archive: the folder it is archived in. Where T and sigma_0 come from a companion, there is one of two: companion,
    the run of it, or chosen, the archive with what it chose, so that it need not be trained.
    """

    index: int
    label: str
    planned: PlannedRun
    run: Run
    companion: Run | None = None
    archive: Path | None = None
    chosen: Path | None = None

    @property
    def source(self) -> Path:
        """Return the folder with what a report reads of it: its archive, or that of the run."""
        return self.archive if self.archive is not None else self.run.folder

    @property
    def folders(self) -> frozenset[str]:
        """Return the run folders that no other task may write to: its own, and those of an ensemble's members.

        Not its companion's: the task that comes first trains it, while the others train their own runs.
        """
        return frozenset(run.folder.name for run in (self.run, *self.run.members()))

    def models(self) -> list[Run]:
        """Return all models that it trains: its run or the members of that, and its companion or its members."""
        return [*self.run.members(), *(self.companion.members() if self.companion is not None else [])]

    def epochs(self) -> int:
        """Return the epochs to train: of all members, and before them of a companion that is not trained yet."""
        first = [self.companion] if self.companion is not None and not self.companion.finished else []
        return sum(run.config.all_epochs for run in (*first, self.run))

    def history(self, epochs: int) -> list[EpochRecord]:
        """Return one record per finished epoch, numbered through members and companion. epochs: as when it began."""
        models = self.run.members()
        if self.companion is not None and epochs > self.run.config.all_epochs:
            models = [*self.companion.members(), *models]
        records = [record for model in models for record in model.history()]
        return [{**record, "epoch": epoch} for epoch, record in enumerate(records, start=1)]

    @property
    def done(self) -> bool:
        """Return whether nothing is left to do: it is archived, or has rows and all its models are trained."""
        if self.archive is not None:
            return True
        rows = run_folder.rows_path(self.run.folder, self.planned.stem)  # packed rows count in an archive alone
        return rows.is_file() and self.run.finished and (self.companion is None or self.companion.finished)

    def trained(self) -> list[Path]:
        """Return the folders of all that is trained: its finished models and its companion's, and the archives."""
        kept = [one for one in (self.archive, self.chosen) if one is not None and run_folder.has_provenance(one)]
        return [*(model.folder for model in self.models() if model.finished), *kept]


def find_tasks(plan: Sequence[PlannedRun], runs: Path, device: torch.device, archives: Collection[Path]) -> list[Task]:
    """Find planned runs on a kind of device: their folders among `runs`, their archives in some folders."""
    several, tasks = len({planned.recipe for planned in plan}) > 1, []
    for index, planned in enumerate(plan):
        run, companion, chosen = Run.of(resolve(planned.config, device), runs), None, None
        if (choosing := planned.choosing) is not None:
            companion = Run.of(resolve(choosing.config, device), runs)
            chosen = find_archive(archives, companion.config, choosing.stem)
        task = Task(
            index=index,
            label=planned.name + (f", {planned.recipe}" if several else ""),
            planned=planned,
            run=run,
            companion=companion if chosen is None else None,
            archive=find_archive(archives, run.config, planned.stem),
            chosen=chosen,
        )
        tasks.append(task)
    return tasks


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """The end of a task: with rows, with an error, or not at all because another process holds a folder it needs.

    held: which folder, by whom and since when. owner: the latter two alone. process: the process that executed it.
    damaged: whether the error is that of a damaged archive, so that trying again does not help.
    """

    task: Task
    rows: list[Row] | None = None
    error: str = ""
    held: str = ""
    owner: str = ""
    process: int = 0
    damaged: bool = False

    @property
    def in_use(self) -> bool:
        """Return whether the task has to wait for another process."""
        return self.rows is None and not self.error


def attempt(job: Job, task: Task, device: torch.device, **hooks: Unpack[Hooks]) -> TaskOutcome:
    """Execute one task. An error ends it but not the study; its traceback is written into the run folder."""
    if not job.runs.is_dir():  # made by whoever launched this
        error = f"{job.runs} is not there: the runs folder must lie on storage that all machines share"
        return TaskOutcome(task=task, error=error)
    try:
        run_folder.clear_failure(task.run.folder)
        if task.archive is not None:
            return TaskOutcome(task=task, rows=archived_rows(task.archive, task.planned.stem), process=os.getpid())
        if task.chosen is not None:
            run_folder.check_archive(task.chosen)
    except Exception as error:
        return TaskOutcome(task=task, error=f"{type(error).__name__}: {error}", damaged=isinstance(error, ValueError))
    try:
        rows = complete_run(
            task.planned, job.runs, root=job.root, device=device, workers=job.workers, engine=job.engine,
            chosen=task.chosen, **hooks,
        )  # fmt: skip
        if job.archive is not None:
            _archive(job, task, job.archive)
        return TaskOutcome(task=task, rows=rows, process=os.getpid())
    except InUseError as error:
        return TaskOutcome(task=task, held=error.held, owner=error.owner)
    except Exception as error:
        run_folder.write_failure(task.run.folder, traceback.format_exc())
        return TaskOutcome(task=task, error=f"{type(error).__name__}: {error}")


def _archive(job: Job, task: Task, into: Path) -> None:
    """Archive what a task measured, and before it what its companion chose, so that other machines need not train it.

    Each folder is held, as another process may archive another line of the same run.
    """
    companion, choosing = task.companion, task.planned.choosing
    if companion and choosing and find_archive([into], companion.config, choosing.stem) is None:
        with owning(companion.folder):
            write_archive(replace(companion, batch_norm=choosing.batch_norm), choosing, into, outcomes=False)
    with owning(task.run.folder):
        run = replace(task.run, batch_norm=task.planned.batch_norm)
        # Refreshed statistics have no outcomes of their own, which are five times the size of everything else.
        kept = job.logits or task.planned.batch_norm == "trained"
        write_archive(run, task.planned, into, outcomes=kept, logits=job.logits)


class Progress(Protocol):
    """What a display is told. hooks: like begin, and return the callbacks of a run that this process trains."""

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


class Launcher(Protocol):
    """Where runs are executed. device: its kind decides their precision and so their folders."""

    @property
    def device(self) -> torch.device: ...

    def open(self, job: Job, progress: Progress | None) -> AbstractContextManager[Pool]:
        """Open a pool to submit to; leaving it stops what still runs."""


class HeldFolder:
    """A folder that another process holds: warn once per holder, give up after GIVE_UP_SECONDS."""

    def __init__(self, holder: str = "") -> None:
        """holder: the holder that the user was already warned of."""
        self.holder, self.since = holder, time.monotonic()

    def gives_up(self, label: str, held: str) -> str:
        """Return an error if it is time to give up, else "". held: which folder, by whom and since when it is held."""
        now = time.monotonic()
        if held != self.holder:
            self.holder, self.since = held, now
            warnings.warn(f"{label} waits, at most {self.limit()}: {held}", stacklevel=2)
        return f"gave up after {self.limit()}: {held}" if now - self.since >= GIVE_UP_SECONDS else ""

    @staticmethod
    def limit() -> str:
        return f"{GIVE_UP_SECONDS / 3600:g} hours"


def dispatch(
    tasks: Sequence[Task], pool: Pool, progress: Progress | None = None, budget: Budget | None = None
) -> Iterator[TaskOutcome]:
    """Yield the outcome of every task as it ends; tasks that do not fit the time budget have none.

    Whether they fit is asked again when another one ends: the fewer share a device, the faster they are.
    Tasks that share a folder never run at once, and keep their order in the plan. Without a budget, those that other
    processes hold are waited for, and taken over if such a process is killed. With one, they are left to them.
    """
    waiting, running, too_long = list(tasks), list[Task](), list[Task]()
    not_before: dict[int, float] = {}
    begun: dict[int, float] = {}
    strangers: dict[int, HeldFolder] = {}  # what processes outside this study hold
    owners: dict[int, list[str]] = {task.index: [] for task in tasks}  # who held its folder, try by try
    display = _Display(progress)
    while waiting or running:
        now = time.monotonic()
        while pool.has_room() and (task := _next(waiting, running, not_before, now)):
            waiting.remove(task)
            if budget is not None and not budget.fits(task):
                too_long.append(task)
                continue
            running.append(task)
            begun[task.index] = time.monotonic()
            pool.submit(task)
        # Tried twice, as a look at a lock holds it for a moment; or never, sharing a folder with one that was.
        if budget is not None and waiting and not running and all(len(owners[task.index]) != 1 for task in waiting):
            _warn_of_left(waiting, owners)
            return
        for outcome in pool.wait(POLL_SECONDS):
            task = outcome.task
            if budget is not None and not outcome.in_use:
                budget.learn(outcome, time.monotonic() - begun[task.index])
            running = [other for other in running if other.index != task.index]
            # Another task of this study may train the companion: that is no stranger, and takes as long as it takes.
            ours = task.companion is not None and any(other.companion == task.companion for other in running)
            if outcome.in_use and not ours and budget is None:
                stranger = strangers.setdefault(task.index, HeldFolder())
                outcome = replace(outcome, error=stranger.gives_up(task.label, outcome.held))
            if outcome.in_use:
                owners[task.index].append(outcome.owner)
                not_before[task.index] = time.monotonic() + RETRY_SECONDS
                waiting = sorted([*waiting, task], key=lambda other: other.index)
            else:
                waiting, too_long = sorted([*waiting, *too_long], key=lambda other: other.index), []
                if task.companion is not None:  # which it may have held, and which others may wait for
                    not_before.clear()
                display.end(outcome)
                yield outcome
        display.update(running)


def _warn_of_left(tasks: Sequence[Task], owners: dict[int, list[str]]) -> None:
    """Say which tasks are left to which processes. owners: as in `dispatch`."""
    left: dict[str, list[str]] = {}  # many seeds may need one companion
    for task in tasks:
        owner = owners[task.index][-1] if owners[task.index] else "sharing a folder with these"
        left.setdefault(owner, []).append(task.label)
    shares = "; ".join(f"{', '.join(labels)} ({owner})" for owner, labels in left.items())
    warnings.warn(f"left to other processes, which work on them or their companions: {shares}", stacklevel=3)


def _next(waiting: Sequence[Task], running: Sequence[Task], not_before: dict[int, float], now: float) -> Task | None:
    """Return the first task that shares no folder with a running one, nor with a waiting one before it."""
    taken = {folder for task in running for folder in task.folders}
    for task in waiting:
        if taken.isdisjoint(task.folders) and not_before.get(task.index, now) <= now:
            return task
        taken |= task.folders
    return None


class _Display:
    """Reports to a display what the run folders say."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = progress
        self.begun: dict[int, int] = {}  # the epochs of a task

    def update(self, running: Sequence[Task]) -> None:
        """Report running tasks. A run begins when a process holds its folder: before, it may be queued."""
        if self.progress is None:
            return
        for task in running:
            if task.index not in self.begun and is_owned(task.run.folder):
                self.begun[task.index] = task.epochs()
                self.progress.begin(task.label, self.begun[task.index])
            if task.index in self.begun and (history := task.history(self.begun[task.index])):
                self.progress.epoch(task.label, history[-1])

    def end(self, outcome: TaskOutcome) -> None:
        if self.progress is not None:
            failed, source = outcome.rows is None, outcome.task.source
            note = f"failed: {outcome.error}" if failed else describe(run_folder.read_history(source))
            self.progress.end(outcome.task.label, note)
