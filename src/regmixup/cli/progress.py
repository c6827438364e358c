"""Progress bars while runs train."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from regmixup.run_folder import describe_last

_EVERY = 60.0
"""Seconds between two lines where there is no terminal."""
_WIDE = 120
"""Columns of a terminal that has room for bars; on a narrower one the numbers alone take two lines."""


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
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}", table_column=Column(ratio=1)),
            console=console,
            expand=True,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=3600,  # an epoch may take minutes
            get_time=lambda: time.monotonic(),
        )
        self.total = total
        self.runs: TaskID | None = self.bars.add_task("runs", total=total, note="") if total > 1 else None
        self.under_way: dict[str, TaskID] = {}
        self.done = 0
        self._execution = ""
        self._printed = time.monotonic()

    def __enter__(self) -> LiveProgress:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def begin(self, label: str, total: int, unit: str = "epochs") -> None:
        """Add a run that starts, perhaps once more and with fewer epochs."""
        if label not in self.under_way:
            self.under_way[label] = self.bars.add_task(label, note="", unit=unit)
        self.bars.update(self.under_way[label], total=total)

    def hooks(self, label: str, epochs: int) -> dict[str, Any]:
        """Add a run that starts, and return the callbacks of `rm.train` that show it."""
        self.begin(label, epochs)
        return {"on_start": self.start, "on_step": partial(self.step, label), "on_epoch": partial(self.epoch, label)}

    def start(self, execution: object) -> None:
        """Print how a run is executed, if it differs from the last one."""
        if str(execution) != self._execution:
            self._execution = str(execution)
            self._print(self._execution)

    def step(self, label: str, record: dict[str, Any]) -> None:
        done = record["epoch"] - 1 + record["step"] / record["steps"]
        self._show(label, f"step {record['step']}/{record['steps']}, {describe_last([record])}", completed=done)

    def epoch(self, label: str, record: dict[str, Any]) -> None:
        self._show(label, describe_last([record]), completed=record["epoch"])

    def advance(self, label: str, images: int, total: int) -> None:
        """Count images read or computed, of `total`. The bar goes after the last of them, bars of earlier work now."""
        self.clear(but=label)
        self.begin(label, total, "images")
        self._show(label, "", advance=images)
        if self.bars.tasks[-1].finished:
            self.clear()

    def clear(self, *, but: str = "") -> None:
        """Remove the bars of work that other work follows: fine-tuning, for one, does not say when it ends."""
        for earlier in self.under_way.keys() - {but}:
            self.bars.remove_task(self.under_way.pop(earlier))
            self.bars.refresh()  # else it stays below the next line

    def end(self, label: str, note: str) -> None:
        """Remove the bar of a run that has ended."""
        if label in self.under_way:
            self.bars.remove_task(self.under_way.pop(label))
        self.done += 1
        if self.runs is not None:
            self.bars.update(self.runs, completed=self.done)
        self._print(f"[{self.done}/{self.total}] {label}: {note}")

    def _show(self, label: str, note: str, **progress: float) -> None:
        """Show how far a run is. progress: what is `completed`, or by how much to `advance`."""
        place = self.under_way[label]
        self.bars.update(place, note=note, **progress)  # type: ignore[arg-type]
        if not self.console.is_terminal and time.monotonic() - self._printed >= _EVERY:
            task = next(task for task in self.bars.tasks if task.id == place)
            parts = [f"{label}: {int(task.completed):,} of {int(task.total or 0):,} {task.fields['unit']}", note]
            if task.time_remaining is not None:
                parts.append(f"{timedelta(seconds=task.time_remaining)} left")
            self._print(", ".join(filter(None, parts)))

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)
