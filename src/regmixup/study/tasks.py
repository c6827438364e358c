"""Tasks: the planned runs of a study with their folders and archives, and whether each is done."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from regmixup import run_folder
from regmixup.study.archive import archived_rows, find_archive
from regmixup.study.evaluate_run import stored_rows
from regmixup.study.planned_run import PlannedRun
from regmixup.training.config import resolve
from regmixup.training.reporting import EpochRecord
from regmixup.training.run import Run
from regmixup.types import Row


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
        """Return the epochs of all its models."""
        return sum(model.config.total_epochs for model in self.models())

    def history(self) -> list[EpochRecord]:
        """Return one record per finished epoch, numbered through all its models."""
        records = [record for model in self.models() for record in model.history()]
        return [{**record, "epoch": epoch} for epoch, record in enumerate(records, start=1)]


def find_tasks(plan: Sequence[PlannedRun], runs: Path, device: torch.device, archives: Collection[Path]) -> list[Task]:
    """Find planned runs on a kind of device: their folders among `runs`, their archives in some folders."""
    several_recipes, tasks = len({planned.recipe for planned in plan}) > 1, []
    for index, planned in enumerate(plan):
        run, companion, chosen = Run.of(resolve(planned.config, device), runs), None, None
        if (choosing := planned.choosing) is not None:
            companion = Run.of(resolve(choosing.config, device), runs)
            chosen = find_archive(archives, companion.config, choosing.stem)
        task = Task(
            index=index,
            label=planned.name + (f", {planned.recipe}" if several_recipes else ""),
            planned=planned,
            run=run,
            companion=companion if chosen is None else None,
            archive=find_archive(archives, run.config, planned.stem),
            chosen=chosen,
        )
        tasks.append(task)
    return tasks
