"""Progress bars while runs train."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn
from rich.table import Column

from regmixup.run_folder import describe

_EVERY = 60.0
"""Seconds between two lines where there is no terminal."""
_WIDE = 120
"""Columns of a terminal that has room for bars; on a narrower one the numbers alone take two lines."""
_PACE = ("images_per_second", "seconds_per_epoch")


class LiveProgress:
    """A bar for the runs done, and one per run under way: epochs, time left, step, loss parts, clean train accuracy,
    images per second.

    Where the output is not a terminal, a line is printed every minute and for every finished run instead.
    """

    def __init__(self, console: Console, *, total: int) -> None:
        self.console = console
        bar = [BarColumn(bar_width=20)] if console.width >= _WIDE else []
        self.bars = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            *bar,
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}", table_column=Column(ratio=1)),
            console=console,
            expand=True,
            transient=True,
            disable=not console.is_terminal,
        )
        self.total = total
        self.runs: TaskID | None = self.bars.add_task("runs", total=total, left="", note="") if total > 1 else None
        self.under_way: dict[str, TaskID] = {}
        self.done = 0
        self._execution = ""
        self._printed = time.monotonic()

    def __enter__(self) -> LiveProgress:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def begin(self, label: str, epochs: int) -> None:
        """Add a run that starts, perhaps once more and with fewer epochs."""
        if label not in self.under_way:
            task = self.bars.add_task(label, total=epochs, left="", note="", begun=time.monotonic(), pace={})
            self.under_way[label] = task
        self.bars.update(self.under_way[label], total=epochs)

    def hooks(self, label: str, epochs: int) -> dict[str, Any]:
        """Add a run that starts, and return the callbacks of `rm.train` that show it."""
        self.begin(label, epochs)
        return {
            "on_start": self.start,
            "on_step": partial(self.step, label),
            "on_epoch": partial(self.epoch, label),
        }

    def start(self, execution: object) -> None:
        """Print how a run is executed, if it differs from the last one."""
        if str(execution) != self._execution:
            self._execution = str(execution)
            self._print(self._execution)

    def step(self, label: str, record: dict[str, Any]) -> None:
        pace = {name: record[name] for name in _PACE if name in record}
        self.bars.update(self.under_way[label], pace=pace)
        done = record["epoch"] - 1 + record["step"] / record["steps"]
        note = f"step {record['step']}/{record['steps']}, {describe([record])}"
        self._show(label, done, f"epoch {record['epoch']}", note, pace.get("seconds_per_epoch"))

    def epoch(self, label: str, record: dict[str, Any]) -> None:
        record = {**record, **self._task(label).fields["pace"]}  # that of the last step, if steps are shown
        seconds = record.get("seconds_per_epoch", record["seconds"])
        self._show(label, record["epoch"], f"epoch {record['epoch']}", describe([record]), seconds)

    def advance(self, label: str, images: int, total: int) -> None:
        """Count images read or computed, of so many in all; the bar is removed after the last, all others at once."""
        for other in self.under_way.keys() - {label}:  # one follows another here, and fine-tuning does not say its end
            self.bars.remove_task(self.under_way.pop(other))
        self.begin(label, total)
        task = self._task(label)
        done = int(task.completed) + images
        pace = (time.monotonic() - task.fields["begun"]) / done if done else None
        self._show(label, done, f"{done:,} images", "", pace)
        if done >= total:
            self.bars.remove_task(self.under_way.pop(label))

    def end(self, label: str, note: str) -> None:
        """Remove the bar of a run that has ended."""
        if label in self.under_way:
            self.bars.remove_task(self.under_way.pop(label))
        self.done += 1
        if self.runs is not None:
            self.bars.update(self.runs, completed=self.done)
        self._print(f"[{self.done}/{self.total}] {label}: {note}")

    def _task(self, label: str) -> Task:
        return next(task for task in self.bars.tasks if task.id == self.under_way[label])

    def _show(self, label: str, done: float, where: str, note: str, seconds_each: float | None) -> None:
        """done: epochs, with a fraction, or images. where: the same in words, for what is not a terminal."""
        total = int(self._task(label).total or 0)
        left = "" if seconds_each is None else f"{timedelta(seconds=round((total - done) * seconds_each))} left"
        self.bars.update(self.under_way[label], completed=done, left=left, note=note)
        if not self.console.is_terminal and time.monotonic() - self._printed >= _EVERY:
            self._print(", ".join(filter(None, [f"{label}: {where} of {total:,}", note, left])))

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
