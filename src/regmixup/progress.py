"""A live line while something trains."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column


class LiveProgress:
    """A bar for the runs done, and one per run under way: its epochs, loss parts and clean train accuracy.

    Where the output is not a terminal, one line per finished run is printed instead.
    """

    def __init__(self, console: Console, *, total: int) -> None:
        self.console = console
        self.bars = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=20),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            console=console,
            expand=True,
            transient=True,
            disable=not console.is_terminal,
        )
        self.total = total
        self.runs: TaskID | None = self.bars.add_task("runs", total=total, note="") if total > 1 else None
        self.under_way: dict[str, TaskID] = {}
        self.done = 0

    def __enter__(self) -> LiveProgress:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def begin(self, label: str, epochs: int) -> None:
        """A run starts, perhaps once more."""
        if label not in self.under_way:
            self.under_way[label] = self.bars.add_task(label, total=epochs, note="")

    def epoch(self, label: str, record: dict[str, Any]) -> None:
        """An epoch of a run has ended."""
        self.bars.update(self.under_way[label], completed=record["epoch"], note=describe([record]))

    def end(self, label: str, note: str) -> None:
        """A run has ended."""
        if label in self.under_way:
            self.bars.remove_task(self.under_way.pop(label))
        self.done += 1
        if self.runs is not None:
            self.bars.update(self.runs, completed=self.done)
        self.console.print(f"[{self.done}/{self.total}] {label}: {note}", markup=False, highlight=False, soft_wrap=True)


def describe(history: list[dict[str, Any]]) -> str:
    """The numbers of the last epoch, in a line.

    >>> describe([{"epoch": 3, "loss": 0.5, "clean": 0.25, "mixed": 0.75, "train_accuracy": 0.98, "seconds": 1.0}])
    'loss 0.500, clean 0.250, mixed 0.750, train accuracy 98.0 %'
    """
    if not history:
        return "finished, without a history"
    record = history[-1]
    parts = [f"{name} {record[name]:.3f}" for name in record if name not in ("epoch", "seconds", "train_accuracy")]
    if "train_accuracy" in record:
        parts.append(f"train accuracy {100 * record['train_accuracy']:.1f} %")
    return ", ".join(parts)
