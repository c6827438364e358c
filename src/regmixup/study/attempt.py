"""Execute one task: train, evaluate, archive. Whatever goes wrong ends the task, not the study."""

from __future__ import annotations

import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import torch

from regmixup import run_folder
from regmixup.storage import InUseError, owning
from regmixup.study.archive import archived_rows, find_archive, write_archive
from regmixup.study.evaluate_run import evaluate_run
from regmixup.study.tasks import Task
from regmixup.training.engine import Engine
from regmixup.training.reporting import counted_on
from regmixup.training.run import Run
from regmixup.training.train import Hooks, train
from regmixup.types import Row


@dataclass(frozen=True, kw_only=True)
class Job:
    """The settings that all runs of a study share. runs: an absolute path that every machine sees.

    archive: a folder for archives of finished runs; an archived run counts as done. logits: archive logits, too.
    """

    runs: Path
    root: Path | None = None
    workers: int | None = None
    engine: Engine | None = None
    archive: Path | None = None
    logits: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """The end of a task: with rows, with an error, or not at all because another process holds a folder it needs.

    held: which folder, by whom and since when.
    """

    task: Task
    rows: list[Row] | None = None
    error: str = ""
    held: str = ""


def attempt(job: Job, task: Task, device: torch.device, **hooks: Unpack[Hooks]) -> TaskOutcome:
    """Execute one task, skipping what is done. The traceback of an error is written into the run folder."""
    if not job.runs.is_dir():  # made by whoever launched this
        error = f"{job.runs} is not there: the runs folder must lie on storage that all machines share"
        return TaskOutcome(task=task, error=error)
    try:
        rows = task.rows() if task.archive is not None else _complete(job, task, device, hooks)
    except InUseError as error:
        return TaskOutcome(task=task, held=str(error))
    except Exception as error:
        if task.archive is None:  # a damaged archive is no failure of the run
            run_folder.write_failure(task.run.folder, traceback.format_exc())
        return TaskOutcome(task=task, error=f"{type(error).__name__}: {error}")
    return TaskOutcome(task=task, rows=rows)


def _complete(job: Job, task: Task, device: torch.device, hooks: Hooks) -> list[Row]:
    """Train and evaluate a task, with its companion if it has one, and archive it where that is asked for.

    The run folder is held until its rows are written: another process that asks for it meanwhile gets an InUseError.
    Callbacks see the epochs of the companion and of the run counted through, as `Task.epochs` does.
    """
    planned, companion, choosing = task.planned, task.companion, task.planned.choosing
    choices: list[Row] = []
    (task.run.folder / run_folder.FAILURE).unlink(missing_ok=True)
    with task.run.owned():
        if choosing is not None and task.chosen is not None:
            choices = archived_rows(task.chosen, choosing.stem)  # before training, as it may be damaged
        if choosing is None or companion is None:
            run = _train(job, task.run, device, hooks)
        else:
            with suppress(InUseError):  # another process trains it; this run needs it only at the end
                _train(job, companion, device, hooks)
            run = _train(job, task.run, device, hooks, earlier=companion.config.all_epochs)
            trained_companion = _train(job, companion, device, hooks)
            choices = evaluate_run(choosing, trained_companion, root=job.root, device=device)
        rows = evaluate_run(planned, run, root=job.root, device=device, choices=choices)
    if job.archive is not None:
        _archive(job, task, job.archive)
    return rows


def _train(job: Job, run: Run, device: torch.device, hooks: Hooks, *, earlier: int = 0) -> Run:
    """Train a run, or read it if it is trained. earlier: the epochs that callbacks have seen before."""
    return train(
        run.config,
        job.runs,
        root=job.root,
        device=device,
        workers=job.workers,
        engine=job.engine,
        on_start=hooks.get("on_start"),
        on_step=counted_on(hooks.get("on_step"), earlier),
        on_epoch=counted_on(hooks.get("on_epoch"), earlier),
    )


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
        outcomes = job.logits or task.planned.batch_norm == "trained"
        write_archive(run, task.planned, into, outcomes=outcomes, logits=job.logits)
