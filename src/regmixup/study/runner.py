"""Run a study: pass its plan to a launcher, and collect one table of rows."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import torch

from regmixup import run_folder
from regmixup.evaluation.evaluate import relative_rows
from regmixup.methods import REFERENCE
from regmixup.names import shortened
from regmixup.networks.precision import check_precision
from regmixup.storage import InUseError, check_writable, digest, owning, read_rows, read_table, write_json, write_rows
from regmixup.study.archive import NOTE, archive_places, archived_rows, check_trainable, is_of
from regmixup.study.check import check_data, check_folder
from regmixup.study.launchers import InTurn, Launcher, Progress, RayTasks
from regmixup.study.plan import Study
from regmixup.study.select import write_selected
from regmixup.study.status import Budget
from regmixup.study.tasks import RETRY_SECONDS, HeldFolder, Job, Task, TaskOutcome, dispatch, find_tasks
from regmixup.training.config import resolve
from regmixup.training.distributed import world_size
from regmixup.training.engine import Engine

_SHOWN = 10


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
    logits: bool = False,
    minutes: float | Budget | None = None,
) -> Path:
    """Run a study to its end and return its folder, with study.json and rows.csv in it.

    launcher: where runs are executed; default, one after the other on `device`. The rows are the same.
    A run that fails does not stop the others; at the end a FailedRunsError names it. Processes that run the same study
    at the same time share its runs: a run that another process holds is skipped, and waited for at the end, but not
    where there is a limit of `minutes`.
    archive: a folder for small archives of finished runs, see `archive.py`; a run archived there or among the runs is
    done, also one of a study that this one `reuses`. logits: archive those of test and OOD sets, too. minutes: start no
    run that would not end within them; a `Budget` counts them from when it was made.
    """
    if launcher is not None and device is not None:
        raise ValueError(f"device must be None where a launcher brings its own, got {device!r}")
    launcher = launcher if launcher is not None else InTurn(device)
    _check_request(study, Path(runs), launcher, Path(archive) if archive else None, minutes)
    folder = study_folder(study, runs)
    job = Job(
        study=study, runs=Path(runs).absolute(), root=Path(root).absolute() if root else None, workers=workers,
        engine=engine, archive=Path(archive).absolute() if archive else None, logits=logits,
    )  # fmt: skip
    places = archive_places(study, job.archive, job.runs)
    budget = minutes if isinstance(minutes, Budget | None) else Budget(minutes, [job.runs, *places], launcher.device)
    tasks = _tasks(job, launcher.device)
    _check_tasks(job, [task for task in tasks if task.archive is None], launcher.device)
    check_folder(study, folder)
    ended: list[TaskOutcome] = []
    with ExitStack() as stack:
        if (holder := _hold(folder, stack)) and budget is None:
            warnings.warn(
                f"another process runs this study, and the two share it: {holder}. At the end this one waits at most "
                f"{HeldFolder.limit()} for it",
                stacklevel=2,
            )
        with launcher.open(job, progress) as pool, _stopped_by_sigterm():
            for outcome in dispatch(tasks, pool, progress, budget):
                ended.append(outcome)
                near = tasks[outcome.task.index : outcome.task.index + 2]
                # Between two archived runs it would cost more than to read them: every row is written each time.
                if not holder and any(task.archive is None for task in near):
                    _collect(study, folder, ended)
        if budget is not None:  # what was left to other processes, as far as they are ready
            seen = {outcome.task.index for outcome in ended}
            ended += _stored(task for task in tasks if task.index not in seen)
        if holder:
            folder_held = HeldFolder(holder)
            while (holder := _hold(folder, stack)) and budget is None:
                if error := folder_held.gives_up("the study's table", holder):
                    raise InUseError(error)
                time.sleep(RETRY_SECONDS)
        if holder:
            warnings.warn(f"the table is written by the other process, later with these runs: {holder}", stacklevel=2)
        else:
            _collect(study, folder, ended)
            write_selected(study, folder)
    if failed := [outcome for outcome in ended if outcome.rows is None]:
        raise FailedRunsError(_explain(failed, total=len(tasks)))
    return folder


def _check_request(study: object, runs: Path, launcher: Launcher, archive: Path | None, minutes: object) -> None:
    """Raise for arguments of `run_study` that contradict each other or the study."""
    if not isinstance(study, Study):
        raise ValueError(f"study must be a Study, as regmixup.study.load returns, got {study!r}")
    if world_size() > 1:
        raise ValueError(
            f"a study must be started without torchrun, got {world_size()} processes: its runs are independent of each "
            "other, so give them a GPU each with --devices"
        )
    if lacking := missing_choices(study, runs):
        raise ValueError(f"study {study.name} must run with {lacking}, got no choices")
    if archive is not None and archive.resolve() == runs.resolve():
        raise ValueError(f"archive must be another folder than that of the runs, got {archive} for both")
    if minutes is not None and isinstance(launcher, RayTasks):
        raise ValueError("minutes must be None with Ray, which is given all runs at once: limit its cluster instead")


def missing_choices(study: Study, runs: Path) -> str:
    """Return what must be given to a study that confirms what another one selected; "" if nothing is missing."""
    if not study.confirms or study.scale != "full" or any(part.values for part in study.parts):
        return ""
    found = study_folder(study, runs).with_name(f"study-{study.confirms}")
    return f"what study {study.confirms} selected (--selected {found}/selected.json)"


def _check_tasks(job: Job, tasks: list[Task], device: torch.device) -> None:
    """Raise unless these tasks can be trained, measured and archived: now, not after hours of training."""
    for task in tasks:
        check_precision(task.planned.evaluate.precision, device)
        for run in (task.run, *task.models()):
            check_trainable(run)
    if job.archive is not None and tasks:
        check_writable(job.archive / NOTE)
    check_data([task.planned for task in tasks], job.root)


def _tasks(job: Job, device: torch.device) -> list[Task]:
    """Return a task per planned run; one whose archive lacks the logits asked for is archived again if possible."""
    tasks = find_tasks(list(job.study.runs()), job.runs, device, archive_places(job.study, job.archive, job.runs))
    without_logits = []
    for task in tasks if job.logits else ():
        planned, archive = task.planned, task.archive
        if archive is not None and planned.evaluate.test and not (archive / f"logits-{planned.stem}.npz").is_file():
            if archive.parent == job.archive and task.run.finished and is_of(archive, task.run):
                # Everything is measured, and is archived again with logits.
                tasks[task.index] = replace(task, archive=None)
            else:
                without_logits.append(task.label)
    if without_logits:
        warnings.warn(
            f"no logits are archived of {', '.join(without_logits)}: archived without them before, and the weights of "
            f"that training are not in {job.runs}",
            stacklevel=3,
        )
    return tasks


def _hold(folder: Path, stack: ExitStack) -> str:
    """Hold the study's folder until the stack is left and return "", or return which other process holds it.

    Only the holder writes an incomplete table.
    """
    try:
        stack.enter_context(owning(folder))
    except InUseError as error:
        return error.held
    return ""


def _collect(study: Study, folder: Path, ended: list[TaskOutcome]) -> None:
    """Write the rows of all tasks that have ended, in the plan's order: an interrupted study has a table, too."""
    done = sorted((outcome for outcome in ended if outcome.rows is not None), key=lambda outcome: outcome.task.index)
    if not done:
        return
    beside = folder.parent.resolve()
    entries = [o.task.planned.entry(os.path.relpath(o.task.source.resolve(), beside)) for o in done]
    rows = [replace(row, study=study.name) for outcome in done for row in outcome.rows or ()]
    write_rows(folder / "rows.csv", [*rows, *relative_rows(rows, reference=REFERENCE)])
    write_json(folder / "study.json", {**study.record, "runs": entries, "rows_digest": digest(folder / "rows.csv")})


def collect_archived(study: Study, runs: Path, into: Path | None = None) -> Path | None:
    """Write a study's table from the archived and the measured runs among `runs`; return its folder.

    into: the folder to write to; default, the study's own. Return None if no run is archived. The kind of device
    decides the precision and so the names of runs: the one with more of them is taken.
    """
    plan, archives = list(study.runs()), archive_places(study, runs.absolute())
    found, tasks = [list[TaskOutcome]()], list[Task]()
    for device in (torch.device("cuda"), torch.device("cpu")):
        try:
            for planned in plan:
                resolve(planned.config, device)
        except ValueError:  # a precision that this kind of device does not have
            continue
        found.append(_stored(tasks := find_tasks(plan, runs.absolute(), device, archives)))
    ended = max(found, key=len)
    if all(outcome.task.archive is None for outcome in ended):
        return None
    taken = {outcome.task.run.folder for outcome in ended}
    left_out = [o.task for other in found for o in other if o.task.run.folder not in taken]
    if left_out:
        names = ", ".join(f"{task.label} ({task.run.config.precision})" for task in left_out)
        warnings.warn(f"left out of the table, as most runs have another precision: {names}", stacklevel=2)
    seen = {outcome.task.index for other in found for outcome in other}
    if absent := [task.label for task in tasks if task.index not in seen]:
        names = shortened(absent, _SHOWN)
        warnings.warn(f"left out of the table, as neither archived nor measured in {runs}: {names}", stacklevel=2)
    into = into if into is not None else study_folder(study, runs)
    with owning(into):
        check_folder(study, into)
        _collect(study, into, ended)
        write_selected(study, into)
    return into


def _stored(tasks: Iterable[Task]) -> list[TaskOutcome]:
    """Return the outcomes of those tasks whose rows are archived or lie in their run folders.

    OSError if a file cannot be read now: its run is not left out as if it were missing.
    """
    found = []
    for task in tasks:
        if task.archive is not None:
            found.append(TaskOutcome(task=task, rows=archived_rows(task.archive, task.planned.stem)))
            continue
        with run_folder.reading(run_folder.rows_path(task.run.folder, task.planned.stem)) as table:
            if run_folder.is_file(table) and not task.run.lacks():
                with run_folder.reading(table.with_suffix(".json")) as note:
                    expected = read_table(note).get("rows") if run_folder.is_file(note) else None
                found.append(TaskOutcome(task=task, rows=read_rows(table, expected=expected)))
    return found


def _explain(failed: list[TaskOutcome], *, total: int) -> str:
    """Say which runs failed, and why: runs with the same error in one paragraph."""
    alike: dict[str, list[TaskOutcome]] = {}
    for outcome in failed:
        alike.setdefault(outcome.error, []).append(outcome)
    again = sum(not outcome.damaged for outcome in failed)
    which = "them" if again == len(failed) else f"{again} of them"
    lines = [f"{len(failed)} of {total} runs failed" + (f"; the same command tries {which} again" if again else "")]
    for error, outcomes in alike.items():
        lines.append(f"  {', '.join(outcome.task.label for outcome in outcomes)}: {error}")
        if not outcomes[0].damaged and (traceback := outcomes[0].task.run.folder / run_folder.FAILURE).is_file():
            lines.append(f"    {traceback}")
    return "\n".join(lines)


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let a batch system's SIGTERM stop a study as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
