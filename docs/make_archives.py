"""The archived runs under results/: which there are, their rows, what they cost, and how a study is continued."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import make_replaced
import torch
from claims import Training, gather

from regmixup.report.aggregation import Aggregation
from regmixup.report.results import Results, RunRecord
from regmixup.study.archive import archive_places, archived_rows
from regmixup.study.cost import spent
from regmixup.study.plan import load_study, studies
from regmixup.study.planned import PlannedRun
from regmixup.study.tasks import Task, find_tasks
from regmixup.types import Row

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Archived:
    """An evaluated run of a study: its planned line and its folder."""

    study: str
    planned: PlannedRun
    folder: Path

    @property
    def record(self) -> RunRecord:
        own = self.planned
        return RunRecord(**own.entry("") | {"folder": self.folder}, calibration=own.evaluate.calibration)


@cache
def tasks(study: str, results: Path = RESULTS) -> list[Task]:
    """Return the lines of a study, with their archives and those of their companions."""
    own, device = load_study(study), torch.device("cuda")
    return find_tasks(list(own.runs()), results / study, device, archive_places(own, results / study))


def archives(study: str, results: Path = RESULTS) -> list[tuple[PlannedRun, Path]]:
    """Return the planned runs of a study that are archived, with their folders."""
    return [(task.planned, task.archive) for task in tasks(study, results) if task.archive is not None]


def cost(study: str, results: Path = RESULTS) -> str:
    """Return what a study's archives cost, companions included; what it reuses is counted where it was trained."""
    found = [folder for task in tasks(study, results) for folder in task.trained()]
    return spent((folder for folder in found if folder.parent.name == study), found)


def folders(results: Path) -> list[str]:
    """Return the studies that have a folder."""
    return sorted(path.name for path in results.iterdir() if path.is_dir() and path.name != "__pycache__")


@cache
def rows_of(folder: Path, stem: str) -> tuple[Row, ...]:
    """Read the rows of an evaluation, once."""
    return tuple(archived_rows(folder, stem))


@cache
def everything(results: Path = RESULTS) -> list[Archived]:
    """Return every archived evaluation, study by study; runs of several numerics versions are an error."""
    begun = dict.fromkeys([*folders(results), *(name for name in studies() if load_study(name).reuses)])
    found = [Archived(study, *one) for study in begun for one in archives(study, results)]
    Results(results, "", "", [one.record for one in found], [])  # refuses to mix numerics versions
    return found


def settings(found: Sequence[Archived], replaced: Sequence[Row] = ()) -> dict[Training, Aggregation]:
    """Return the rows of all studies by how the networks were trained.

    replaced: rows of trainings that were replaced, which count as further seeds.
    """
    rows = [(one.record, rows_of(one.folder, one.planned.stem)) for one in found]
    others = [(one.record, make_replaced.kept(replaced, one.record.key, one.planned.label)) for one in found]
    return gather([*rows, *others])


def command(study: str) -> str:
    """Return the command that continues a study, as a block of code."""
    chosen = f" --selected runs/study-{name}/selected.json" if (name := load_study(study).confirms) else ""
    return f"    regmixup study {study} --archive results/{study} --device cuda{chosen}"
