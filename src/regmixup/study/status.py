"""The state of every run of a study, read from the run folders only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from regmixup import run_folder
from regmixup.study.archive import find_archive
from regmixup.study.cost import estimate, models
from regmixup.study.plan import PlannedRun
from regmixup.training.config import resolve
from regmixup.training.run import Run

State = Literal["done", "running", "waiting", "failed"]
ORDER: tuple[State, ...] = ("running", "failed", "waiting", "done")
_REFRESH_SECONDS = 2.0


@dataclass(frozen=True)
class RunStatus:
    """epoch: finished epochs of all models of the run, out of `epochs`. seconds_left: None if unknown."""

    planned: PlannedRun
    state: State
    epoch: int
    epochs: int
    loss: float | None
    seconds_left: float | None
    note: str = ""


def run_status(planned: PlannedRun, runs: Path, device: torch.device, archives: Sequence[Path] = ()) -> RunStatus:
    """Return the state of a run: done with rows, running while a live process holds the folder, failed, or waiting.

    A run that is archived, among the runs or in one of the archives, is done.
    """
    trained = [resolve(config, device) for config in models(planned)]
    if find_archive([*archives, runs], resolve(planned.config, device).name, planned.stem) is not None:
        epochs = sum(config.total_epochs for config in trained)
        return RunStatus(planned, "done", epochs, epochs, None, None)
    folders = [Run(runs / config.name, config) for config in trained]
    histories = [run.history() for run in folders]
    epoch, epochs = sum(map(len, histories)), sum(config.total_epochs for config in trained)
    own = runs / resolve(planned.config, device).name
    last = next((history[-1] for history in reversed(histories) if history), None)
    state: State = "waiting"
    note = ""
    if all(run.finished for run in folders) and run_folder.rows_path(own, planned.stem).is_file():
        state = "done"
    elif run_folder.is_locked(own):
        state = "running"
    elif (failure := run_folder.read_failure(own)) is not None:
        state, note = "failed", failure.strip().rpartition("\n")[2]
    pace = [record["seconds"] for history in histories for record in history[-10:] if "seconds" in record]
    left = (epochs - epoch) * sum(pace) / len(pace) if pace and state != "done" else None
    if left is None and state != "done":
        minutes = estimate([planned]).minutes
        left = 60 * minutes if minutes is not None else None
    return RunStatus(planned, state, epoch, epochs, last["loss"] if last else None, left, note)


def status_table(found: Sequence[RunStatus], title: str) -> Group:
    """Lay out the states: running first, done last, then a line of totals."""
    table = Table(title=Text(title), box=None, pad_edge=False, title_justify="left")
    several = len({status.planned.recipe for status in found}) > 1
    for name in ("state", "run", *(["recipe"] if several else []), "epoch", "loss", "left", ""):
        right = name in ("epoch", "loss", "left")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "")
    for status in sorted(found, key=lambda status: ORDER.index(status.state)):
        cells = [status.state, status.planned.name, *([status.planned.recipe] if several else [])]
        cells += [f"{status.epoch}/{status.epochs}", "" if status.loss is None else f"{status.loss:.3f}"]
        cells += ["" if status.state == "done" else shown_time(status.seconds_left), status.note]
        table.add_row(*map(Text, cells))
    counts = Counter(status.state for status in found)
    sums = ", ".join(f"{counts[state]} {state}" for state in reversed(ORDER) if counts[state])
    return Group(table, Text(f"{sums} of {len(found)} runs"))


def shown_time(seconds: float | None) -> str:
    """
    >>> shown_time(42), shown_time(600), shown_time(9000), shown_time(2e5), shown_time(None)
    ('42 s', '10 min', '2.5 h', '2.3 d', '?')
    """
    if seconds is None:
        return "?"
    for unit, size, until in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < until:
            return f"{seconds / size:.1f} {unit}" if unit == "h" else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.1f} d"


def show_status(
    plan: Sequence[PlannedRun],
    runs: Path,
    device: torch.device,
    title: str,
    console: Console,
    archives: Sequence[Path] = (),
) -> None:
    """Print the table: live in a terminal until all is done or it is interrupted, once elsewhere."""

    def look() -> list[RunStatus]:
        return [run_status(planned, runs, device, archives) for planned in plan]

    found = look()
    if not console.is_terminal:
        console.print(status_table(found, title), soft_wrap=True)
        return
    with Live(status_table(found, title), console=console, auto_refresh=False) as live:
        while any(status.state != "done" for status in found):
            time.sleep(_REFRESH_SECONDS)
            found = look()
            live.update(status_table(found, title), refresh=True)
