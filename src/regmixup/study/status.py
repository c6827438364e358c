"""The state of a study: which of its runs are done, as folders and archives say, and which data is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class RunStatus:
    """The state of a task. note: the error of one that failed, else where it lies."""

    task: Task
    state: State
    note: str

    def __str__(self) -> str:
        """Return its epochs, loss and time left, as far as it has any."""
        if self.state == "done":
            return ""
        history, minutes = self.task.history(), estimate([self.task]).minutes
        epochs = f"epoch {len(history)}/{self.task.epochs()}"
        loss = f", loss {history[-1]['loss']:.3f}" if history else ""
        return epochs + loss + (f", {minutes:.1f} min left" if minutes is not None else "")


def run_status(task: Task) -> RunStatus:
    """Return the state of a task: done, running while a live process holds the folder, failed, or to do."""
    if task.done:
        return RunStatus(task, "done", str(task.source))
    if is_held(task.run.folder):
        return RunStatus(task, "running", str(task.source))
    if (failure := task.run.folder / run_folder.FAILURE).is_file():
        return RunStatus(task, "failed", failure.read_text(encoding="utf-8").strip().rpartition("\n")[2])
    return RunStatus(task, "to do", str(task.source))


def status_lines(statuses: Sequence[RunStatus]) -> Iterator[str]:
    """Yield a line per run, in the order of the plan, and one that counts the states."""
    longest = max(len(status.task.label) for status in statuses)
    for status in statuses:
        parts = (f"{status.state:7} {status.task.label:{longest}}", str(status), status.note)
        yield "  ".join(part for part in parts if part)
    counts = Counter(status.state for status in statuses)
    yield f"runs    {', '.join(f'{count} {state}' for state, count in counts.items())}"


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
