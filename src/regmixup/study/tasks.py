"""Tasks: the planned runs of a study with their folders, whether each is done, and how one is executed."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from regmixup import run_folder
from regmixup.config import Checked, CountOrZero, values_of
from regmixup.storage import InUseError
from regmixup.study.archive import archived_rows, find_archive, write_archive
from regmixup.study.evaluate_run import evaluate_run, stored_rows
from regmixup.study.planned_run import PlannedRun
from regmixup.training.config import plugins_of, resolve
from regmixup.training.engine import Engine
from regmixup.training.reporting import Hooks, Record
from regmixup.training.run import Run
from regmixup.training.train import train
from regmixup.types import Row


@dataclass(frozen=True, kw_only=True)
class Task:
    """One planned run. index: its place in the plan. title: label, seed and recipe. run: its folder and config.

    archive: the folder it is archived in. companion: the run that T and sigma_0 come from, if that is another one.
    """

    index: int
    title: str
    planned: PlannedRun
    run: Run
    companion: Run | None = None
    archive: Path | None = None

    @property
    def done(self) -> bool:
        """Return whether nothing is left to do. Status, dry run, time limit and report all ask here.

        A task is done if its evaluation is archived, which `find_tasks` finds out; or if its rows are in the run folder
        and all its models are trained, which `Run.finished` decides. A study executes what is done as well: that reads
        the rows, and computes them again where predictions, settings or the code of a metric have changed.
        """
        if self.archive is not None:
            return True
        has_rows = run_folder.rows_path(self.run.folder, self.planned.stem).is_file()
        return has_rows and self.run.finished and (self.companion is None or self.companion.finished)

    def rows(self) -> list[Row]:
        """Read the rows of a task that is done; ValueError if they, or its archive, are damaged."""
        if self.archive is not None:
            return archived_rows(self.archive, self.planned.stem)
        return stored_rows(self.run.folder, self.planned.stem)

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
        """Return all models that it trains: its companion or the members of that, then its run or its members."""
        return [*(self.companion.members() if self.companion is not None else []), *self.run.members()]

    def epochs(self) -> int:
        return sum(model.config.total_epochs for model in self.models())

    def history(self) -> list[Record]:
        """Return one record per finished epoch, numbered through all its models."""
        records = [record for model in self.models() for record in model.history()]
        return [{**record, "epoch": epoch} for epoch, record in enumerate(records, start=1)]


def find_tasks(plan: Sequence[PlannedRun], runs: Path, device: torch.device, archives: Collection[Path]) -> list[Task]:
    """Find planned runs on a kind of device: their folders among `runs`, their archives in some folders."""
    several_recipes, tasks = len({planned.recipe for planned in plan}) > 1, []
    for index, planned in enumerate(plan):
        run, companion = Run.of(resolve(planned.config, device), runs), planned.companion
        task = Task(
            index=index,
            title=planned.name + (f", {planned.recipe}" if several_recipes else ""),
            planned=planned,
            run=run,
            companion=Run.of(resolve(companion, device), runs) if companion is not None else None,
            archive=find_archive(archives, run.config, planned.stem),
        )
        tasks.append(task)
    return tasks


@dataclass(frozen=True, kw_only=True)
class StudyJob(Checked):
    """The settings that all runs of a study share. runs: an absolute path that every machine sees.

    archive: a folder for archives of finished runs; an archived run counts as done. threads: of a process that a
    launcher has started for them.
    """

    runs: Path
    root: Path | None = None
    workers: CountOrZero | None = None
    engine: Engine | None = None
    archive: Path | None = None
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """The end of a task: done, with an error, or not at all because another process holds a folder it needs.

    held: which folder, by whom and since when.
    """

    task: Task
    error: str = ""
    held: str = ""


def attempt(job: StudyJob, task: Task, device: torch.device, hooks: Hooks = Hooks()) -> TaskOutcome:  # noqa: B008
    """Execute one task, skipping the steps that are done. The traceback of an error is written into the run folder."""
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    if not job.runs.is_dir():  # made by whoever launched this
        error = f"{job.runs} is not there: the runs folder must lie on storage that all machines share"
        return TaskOutcome(task=task, error=error)
    try:
        if task.archive is not None:
            task.rows()
        else:
            _complete(job, task, device, hooks)
    except InUseError as error:
        return TaskOutcome(task=task, held=str(error))
    except Exception as error:
        if task.archive is None:  # a damaged archive is no failure of the run
            run_folder.write_failure(task.run.folder, traceback.format_exc())
        return TaskOutcome(task=task, error=f"{type(error).__name__}: {error}")
    return TaskOutcome(task=task)


def _complete(job: StudyJob, task: Task, device: torch.device, hooks: Hooks) -> None:
    """Train and evaluate a task, with its companion if it has one, and archive it where that is asked for.

    The run folder is held until all is written: another process that asks for it meanwhile, perhaps for another line of
    the same run, gets an InUseError.
    Callbacks see the epochs of the companion and of the run counted through, as `Task.epochs` does.
    """
    planned, companion = task.planned, task.companion
    companion_rows: list[Row] = []
    (task.run.folder / run_folder.FAILURE).unlink(missing_ok=True)
    with task.run.owned():
        if companion is None:
            run = _train(job, task.run, device, hooks)
        else:
            with suppress(InUseError):  # another process trains it; this run needs it only at the end
                _train(job, companion, device, hooks)
            epochs = companion.config.total_epochs * companion.config.members
            run = _train(job, task.run, device, hooks.after(epochs))
            trained_companion = _train(job, companion, device, hooks)
            companion_rows = evaluate_run(planned.companion_line, trained_companion, root=job.root, device=device)
        evaluate_run(planned, run, root=job.root, device=device, companion_rows=companion_rows)
        if job.archive is not None:
            write_archive(task.run, planned, job.archive)


def _train(job: StudyJob, run: Run, device: torch.device, hooks: Hooks) -> Run:
    """Train a run, or read it if it is trained."""
    now = plugins_of(run.config)
    if now != run.config.plugins:  # a process that starts late imports what is there then
        names = ", ".join(sorted({origin.name for origin in {*now} ^ {*run.config.plugins}}))
        raise ValueError(
            f"plugins must be as when the study began, got another source of {names}: start it again "
            "(for Ray, a plugin must hold what a script or notebook defines)"
        )
    return train(
        run.config, job.runs, root=job.root, device=device, workers=job.workers, engine=job.engine, **values_of(hooks)
    )
