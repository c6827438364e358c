"""The state of a study: which of its runs are done, as folders and archives say, and which data is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from regmixup import run_folder
from regmixup.data.catalogue import find
from regmixup.data.files import MissingDataError, data_root, missing_files
from regmixup.data.folders import find_folder
from regmixup.names import shortened
from regmixup.storage import is_held
from regmixup.study.cost import estimate
from regmixup.study.planned_run import PlannedRun
from regmixup.study.tasks import Task

State = Literal["done", "running", "to do", "failed"]


def state_of(task: Task) -> State:
    """Return the state of a task: done, running while a live process holds the folder, failed, or to do."""
    if task.done:
        return "done"
    if is_held(task.run.folder):
        return "running"
    return "failed" if (task.run.folder / run_folder.FAILURE).is_file() else "to do"


def status_lines(tasks: Sequence[Task]) -> Iterator[str]:
    """Yield a line per run, in the order of the plan, and one that counts the states."""
    longest = max(len(task.label) for task in tasks)
    states = [state_of(task) for task in tasks]
    for task, state in zip(tasks, states, strict=True):
        parts = [f"{state:7} {task.label:{longest}}"]
        if state != "done":
            history, minutes = task.history(), estimate([task]).minutes
            loss = f", loss {history[-1]['loss']:.3f}" if history else ""
            left = f", {minutes:.1f} min left" if minutes is not None else ""
            parts.append(f"epoch {len(history)}/{task.epochs()}{loss}{left}")
        if state == "failed":
            failure = (task.run.folder / run_folder.FAILURE).read_text(encoding="utf-8")
            parts.append(failure.strip().rpartition("\n")[2])
        yield "  ".join([*parts, str(task.source)])
    yield f"runs    {', '.join(f'{count} {state}' for state, count in Counter(states).items())}"


def missing_data(plan: Iterable[PlannedRun], root: str | Path | None = None) -> dict[str, list[str]]:
    """Return the datasets of a plan that are incomplete under the root, with their missing files. Reads no image."""
    where = data_root(root)
    names: dict[str, None] = {}
    for planned in plan:
        used = [*(model.train_set for model in planned.models()), *planned.evaluate.datasets()]
        names |= dict.fromkeys(find(name).whole for name in used)
    missing = {name: missing_files(find(name), where) for name in names}
    missing |= {name: [name] for name in names if find(name).is_folder and find_folder(name, where) is None}
    return {name: files for name, files in missing.items() if files}


def explain_missing(missing: dict[str, list[str]]) -> str:
    """Return one line per family, with its first missing file."""
    families: dict[str, list[str]] = {}
    for name, files in missing.items():
        families.setdefault(find(name).family, []).extend(files)
    lines = [f"  {family}: {shortened(list(dict.fromkeys(files)), 1)}" for family, files in families.items()]
    return "the study needs data that is missing:\n" + "\n".join(lines)


def check_data(plan: Iterable[PlannedRun], root: str | Path | None = None) -> None:
    """Raise unless every dataset of a plan is there."""
    if missing := missing_data(plan, root):
        raise MissingDataError(
            f"{explain_missing(missing)}\nunder {data_root(root)}. `regmixup data fetch NAME` fetches one. If you have "
            "the files, name their folder by --root or the environment variable REGMIXUP_DATA"
        )
