"""The state of a study: which of its runs are done, as folders and archives say, and which data is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from regmixup import run_folder
from regmixup.data.catalogue import find
from regmixup.data.files import data_root, missing_files
from regmixup.data.folders import find_folder
from regmixup.names import shortened
from regmixup.storage import is_held
from regmixup.study.cost import estimate
from regmixup.study.planned_run import PlannedRun
from regmixup.study.tasks import Task


def state_of(task: Task) -> str:
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


def missing_data(plan: Iterable[PlannedRun], root: str | Path | None = None) -> str:
    """Name the data of a plan that is not under the root, a line per family; "" if all is there. Reads no image."""
    where = data_root(root)
    names: dict[str, None] = {}
    for planned in plan:
        configs = [planned.config, *([planned.companion] if planned.companion is not None else [])]
        used = [*(config.train_set for config in configs), *planned.evaluate.datasets()]
        names |= dict.fromkeys(find(name).whole for name in used)
    files: dict[str, dict[str, None]] = {}
    for name in names:
        dataset = find(name)
        absent = [name] if dataset.is_folder and find_folder(name, where) is None else missing_files(dataset, where)
        files.setdefault(dataset.family, {}).update(dict.fromkeys(absent))
    lines = [f"  {family}: {shortened([*absent], 1)}" for family, absent in files.items() if absent]
    return "\n".join(["the study needs data that is missing:", *lines]) if lines else ""
