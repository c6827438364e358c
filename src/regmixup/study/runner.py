"""Run a study: pass its tasks to a launcher, and collect one table of rows."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import torch

from regmixup import run_folder
from regmixup.config import encode
from regmixup.data.files import MissingDataError, data_root
from regmixup.names import counted, shortened, warn_user
from regmixup.networks.precision import check_precision
from regmixup.storage import InUseError, check_writable, digest, is_held, owning, write_json, write_rows
from regmixup.study.archive import archive_places, check_trainable
from regmixup.study.dispatch import dispatch
from regmixup.study.launchers import InTurn, Launcher, Progress, RayTasks
from regmixup.study.plan import Study
from regmixup.study.select import write_selected
from regmixup.study.status import Budget, missing_data
from regmixup.study.tasks import StudyJob, Task, TaskOutcome, find_tasks
from regmixup.training.distributed import world_size
from regmixup.training.engine import Engine
from regmixup.training.stopping import handle
from regmixup.types import Row


class FailedRunsError(RuntimeError):
    """Some runs of a study failed; the others are complete, and collected."""

    exit_status = 1


def study_folder(study: Study, runs: str | Path) -> Path:
    """Return where a study keeps its rows and report; the runs lie beside it and may serve several studies."""
    return Path(runs) / f"study-{study.name}"


def run_study(
    study: Study,
    runs: str | Path = "runs",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    launcher: Launcher | None = None,
    archive: str | Path | None = None,
    minutes: float | None = None,
) -> Path:
    """Run a study to its end and return its folder, with study.json and rows.csv in it.

    launcher: where runs are executed; default, one after the other on `device`. The rows are the same.
    A run that fails does not stop the others; at the end a FailedRunsError names it. A study that is stopped has no
    table of what is done; `collect`, which `regmixup report` calls, makes it. Processes that run the same study
    at the same time share its runs: a run that another process holds is skipped, and waited for at the end, but not
    where there is a limit of `minutes`.
    archive: a folder for small archives of finished runs, see `archive.py`; a run archived there or among the runs is
    done, also one of a study that this one `reuses`. minutes: start no run that would not end within them; if none
    would, that is an error.
    """
    if launcher is not None and device is not None:
        raise ValueError(f"device must be None where a launcher brings its own, got {device!r}")
    launcher = launcher if launcher is not None else InTurn(device)
    job = StudyJob(
        runs=Path(runs).absolute(),
        root=Path(root).absolute() if root else None,
        workers=workers,
        engine=engine,
        archive=Path(archive).absolute() if archive else None,
    )
    tasks = find_tasks(list(study.runs()), job.runs, launcher.device, archive_places(study, job.archive, job.runs))
    _check(study, job, launcher, minutes, [task for task in tasks if task.archive is None])
    budget = Budget(minutes) if minutes is not None else None
    folder = study_folder(study, runs)
    folder.mkdir(parents=True, exist_ok=True)
    undone = [task for task in tasks if not task.done]
    launcher.open(job, progress)
    with closing(launcher), ExitStack() as handlers:
        # SIGTERM, by which a batch system ends a job, stops a study as Ctrl-C does.
        handle(signal.SIGTERM, signal.default_int_handler, until=handlers)
        outcomes = {outcome.task.index: outcome for outcome in dispatch(tasks, launcher, progress, budget)}
    failed = {index: outcome for index, outcome in outcomes.items() if outcome.error}
    while True:
        with suppress(InUseError):
            _collect(study, folder, _measured([task for task in tasks if task.index not in failed]))
            break
        time.sleep(0.1)  # another process writes the table
    if failed:
        raise FailedRunsError(_explain([*failed.values()], total=len(tasks)))
    if budget is not None and not any(task.index in outcomes for task in undone):
        _check_minutes(budget, undone)
    return folder


def missing_choices(study: Study, runs: Path) -> str:
    """Return what must be given to a study that confirms what another one selected; "" if nothing is missing."""
    if not study.confirms or study.scale != "full" or study.selected:
        return ""
    searched = study_folder(study, runs).with_name(f"study-{study.confirms}")
    return f"what study {study.confirms} selected (--selected {searched}/selected.json)"


def _check(study: Study, job: StudyJob, launcher: Launcher, minutes: float | None, tasks: Sequence[Task]) -> None:
    """Raise unless these tasks can be trained, measured and archived: now, not after hours of training."""
    if world_size() > 1:
        raise ValueError(
            f"a study must be started without torchrun, got {world_size()} processes: its runs are independent of each "
            "other, so give them a GPU each with --devices"
        )
    if lacking := missing_choices(study, job.runs):
        raise ValueError(f"study {study.name} must run with {lacking}, got no choices")
    if minutes is not None and isinstance(launcher, RayTasks):
        raise ValueError("minutes must be None with Ray, which is given all runs at once: limit its cluster instead")
    for task in tasks:
        check_precision(task.planned.evaluate.precision, launcher.device)
        for run in (task.run, *task.models()):
            check_trainable(run)
    if job.archive is not None and tasks:
        check_writable(job.archive / run_folder.ARCHIVED)
        beside = [job.archive.parent / name for name in study.reuses]
        if absent := [str(folder) for folder in beside if not folder.is_dir()]:
            warn_user(f"nothing is reused from {', '.join(absent)}: no such folder")
    if lost := lost_weights(tasks, archive_places(study, job.archive, job.runs)):
        warn_user(lost)
    if missing := missing_data(tasks, job.root):
        raise MissingDataError(
            f"{missing}\nunder {data_root(job.root)}. `regmixup data fetch NAME` fetches one. If you have the files, "
            "name their folder by --root or the environment variable REGMIXUP_DATA"
        )


def lost_weights(tasks: Sequence[Task], places: Sequence[Path]) -> str:
    """Name the tasks that train a network again because only its archive is left; "" if none does.

    A member of an ensemble, or a network that this study evaluates in another way.
    """
    lost: dict[str, set[str]] = {}
    for task in tasks:
        for model in task.models():
            name = model.config.name
            is_archived = any((place / name / run_folder.ARCHIVED).is_file() for place in places)
            if is_archived and not model.finished:
                lost.setdefault(task.title, set()).add(name)
    if not lost:
        return ""
    count = counted(len(set.union(*lost.values())), "archived network")
    return f"{count} must be trained again, as archives have no weights: for {shortened([*lost], 10)}"


def _check_minutes(budget: Budget, undone: Sequence[Task]) -> None:
    """Raise if a time limit was too short for any run, so that a queue does not start the same command for ever."""
    if undone and not any(is_held(task.run.folder) for task in undone):
        shortest = min(undone, key=budget.seconds)
        raise ValueError(
            f"minutes must be enough for one of the {len(undone)} runs that are left, got {budget.minutes:g}; the "
            f"shortest, {shortest.title}, takes about {budget.seconds(shortest):.0f} s. Without a limit a run is "
            "trained in pieces: stopped by SIGTERM or Ctrl-C it saves a checkpoint"
        )


def _measured(tasks: Sequence[Task]) -> list[tuple[Task, list[Row]]]:
    """Return the tasks that are done, whichever process has done them, with their rows."""
    measured = []
    for task in tasks:
        if task.done:
            with suppress(OSError, ValueError):  # damaged or half written: it is measured again when its turn comes
                measured.append((task, task.rows()))
    return measured


def _collect(study: Study, folder: Path, measured: Sequence[tuple[Task, list[Row]]]) -> None:
    """Write the table of a study, complete or not, and what it selects. InUseError if another process does so now."""
    with owning(folder):
        if not measured:
            return
        runs = folder.parent.resolve()
        entries = [task.planned.entry(os.path.relpath(task.source.resolve(), runs)) for task, _ in measured]
        rows = [replace(row, study=study.name) for _, of_task in measured for row in of_task]
        write_rows(folder / "rows.csv", rows)
        record = {**encode(study), "runs": entries, "rows_digest": digest(folder / "rows.csv")}
        write_json(folder / "study.json", record)
        write_selected(study, folder, rows)


def collect(study: Study, runs: Path, into: Path | None = None) -> Path:
    """Write a study's table from the archived and the measured runs among `runs`; return its folder.

    into: the folder to write to; default, the study's own. The kind of device decides the precision and so the names
    of runs: the one with more of them is taken.
    """
    if missing_choices(study, runs):  # other runs may have the values that the choices replace
        folder = study_folder(study, runs)
        raise ValueError(
            f"study must not be {study.name}, which confirms what {study.confirms} selected: report the folder of the "
            f"study with these choices, {folder}-selected"
        )
    plan, archives = list(study.runs()), archive_places(study, runs.absolute())
    on_devices = []
    for device in (torch.device("cuda"), torch.device("cpu")):
        with suppress(ValueError):  # a precision that this kind of device does not have
            on_devices.append(find_tasks(plan, runs.absolute(), device, archives))
    tasks = max(on_devices, key=lambda tasks: sum(task.done for task in tasks), default=[])
    done = [task for task in tasks if task.done]
    if not done:
        raise ValueError(
            f"runs must hold results of the study {study.source or study.name}, got {runs}: no run of it is done there"
        )
    if absent := [task.title for task in tasks if not task.done]:
        precision = done[0].run.config.precision
        where = f"as neither archived nor measured in {runs} with precision {precision}"
        warn_user(f"left out of the table, {where}: {shortened(absent, 10)}")
    into = into if into is not None else study_folder(study, runs)
    _collect(study, into, [(task, task.rows()) for task in done])
    return into


def _explain(failed: Sequence[TaskOutcome], *, total: int) -> str:
    """Say which runs failed, why, and where their tracebacks are."""
    lines = [f"{len(failed)} of {total} runs failed; the same command tries them again"]
    for outcome in failed:
        lines.append(f"  {outcome.task.title}: {outcome.error}")
        if (traceback := outcome.task.run.folder / run_folder.FAILURE).is_file():
            lines.append(f"    {traceback}")
    return "\n".join(lines)
