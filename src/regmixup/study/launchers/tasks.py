"""What is handed to a process or a machine, and what comes back."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import torch

from regmixup import run_folder
from regmixup.config import check_count
from regmixup.storage import InUseError, owning
from regmixup.study.archive import archived_rows, write_archive
from regmixup.study.carry_out import carry_out
from regmixup.study.plan import PlannedRun, Study
from regmixup.training.engine import Engine
from regmixup.training.reporting import EpochRecord
from regmixup.training.run import Run
from regmixup.training.train import Hooks
from regmixup.types import Row

RETRIES = 3
"""How often a run is tried again in one study after the process that had it was lost."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all runs of a study share. runs: an absolute path, which every machine sees.

    archive: where finished runs are archived as well; an archived run is done. logits: archive those, too.
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
    """One planned run. index: its place in the plan. label: what a display calls it. run: its folder and config.

    companion: the run that its temperature comes from, if that is another. archive: the folder that holds it already.
    """

    index: int
    label: str
    planned: PlannedRun
    run: Run
    companion: Run | None = None
    archive: Path | None = None

    @property
    def folders(self) -> frozenset[str]:
        """The run folders it writes to: its own, its companion's, and those of an ensemble's members."""
        runs = [self.run, *([self.companion] if self.companion is not None else [])]
        members = [member for run in runs if run.config.members > 1 for member in run.members()]
        return frozenset(run.folder.name for run in (*runs, *members))

    def epochs(self) -> int:
        """Epochs to train, of all members together."""
        return self.run.config.total_epochs * self.run.config.members

    def history(self) -> list[EpochRecord]:
        """One record per epoch trained so far, numbered through the members of an ensemble."""
        runs = self.run.members() if self.run.config.members > 1 else [self.run]
        records = [record for run in runs for record in run.history()]
        return [{**record, "epoch": epoch} for epoch, record in enumerate(records, start=1)]

    def fail(self, text: str) -> None:
        """Leave a note in the run folder, if that is possible at all."""
        run_folder.write_failure(self.run.folder, text)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a task ended: with rows, with an error, or not at all because another process holds a folder it needs.

    held: which folder, by whom and since when.
    """

    task: Task
    rows: list[Row] | None = None
    error: str = ""
    held: str = ""

    @property
    def in_use(self) -> bool:
        return self.rows is None and not self.error


def attempt(job: Job, task: Task, device: torch.device, **hooks: Unpack[Hooks]) -> Outcome:
    """Carry out one run. An error ends it but not the study: its traceback is left in the run folder."""
    if not job.runs.is_dir():  # made by whoever launched this
        error = f"{job.runs} is not there: the runs folder must lie on storage that all machines share"
        return Outcome(task=task, error=error)
    try:
        if task.archive is not None:
            rows = archived_rows(task.archive, task.planned.stem)
            return Outcome(task=task, rows=[replace(row, study=job.study.name) for row in rows])
        run_folder.clear_failure(task.run.folder)
        rows = carry_out(
            job.study, task.planned, job.runs, root=job.root, device=device, workers=job.workers, engine=job.engine,
            **hooks,
        )  # fmt: skip
        if job.archive is not None:
            with owning(task.run.folder):  # another process may archive another line of the same run
                run = replace(task.run, batch_norm=task.planned.batch_norm)
                write_archive(run, task.planned, job.archive, logits=job.logits)
        return Outcome(task=task, rows=rows)
    except InUseError as error:
        return Outcome(task=task, held=str(error))
    except Exception as error:
        task.fail(traceback.format_exc())
        return Outcome(task=task, error=f"{type(error).__name__}: {error}")
