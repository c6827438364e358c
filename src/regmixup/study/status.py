"""The state of every run of a study, as its folders and archives say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from regmixup import run_folder
from regmixup.storage import is_held
from regmixup.study.cost import estimate
from regmixup.study.tasks import Task

State = Literal["done", "running", "to do", "failed", "damaged"]


@dataclass(frozen=True)
class RunStatus:
    """The state of a task. note: the error of one that failed or is damaged, else where it lies."""

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
    """Return the state of a task: done, running while a live process holds the folder, failed, or to do.

    damaged: a file of an archive that the study would read is missing, has changed, or cannot be read.
    """
    try:
        for archive in (task.archive, task.chosen):
            if archive is not None:
                run_folder.check_archive(archive)
    except (OSError, ValueError) as error:
        return RunStatus(task, "damaged", str(error))
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
    yield f"{', '.join(f'{count} {state}' for state, count in counts.items())} of {len(statuses)} runs"
