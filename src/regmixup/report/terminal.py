"""Tables in the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from regmixup.names import printable
from regmixup.report.tables import Cell, Table


@dataclass(frozen=True)
class TerminalTable:
    """A table that rich prints: one line per quantity, one column per method; best in bold.

    Methods for which the terminal is too narrow follow in further blocks, so that no number is cut.
    """

    table: Table
    title: str
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        blocks, rest = [], list(self.table.lines)
        while rest:
            count = self._fitting(rest, console, options)
            blocks.append(self._block(rest[:count]))
            rest = rest[count:]
        if blocks:
            blocks[0].title = Text(printable(self.title), "bold")  # Text, not str: square brackets are not markup
            blocks[-1].caption = Text(printable(self.caption)) if self.caption else None
        yield from blocks

    def _fitting(self, methods: list[str], console: Console, options: ConsoleOptions) -> int:
        """How many of the methods fit side by side; at least one, whose quantities' names then are folded."""
        unbounded = options.update(width=10_000)
        fits = (
            count
            for count in range(len(methods), 1, -1)
            if console.measure(self._block(methods[:count]), options=unbounded).maximum <= options.max_width
        )
        return next(fits, 1)

    def _block(self, methods: list[str]) -> RichTable:
        grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        grid.add_column("", overflow="fold")
        for method in methods:
            grid.add_column(Text(printable(method)), justify="right", no_wrap=True)
        for index, column in enumerate(self.table.columns):
            cells = (self.table.lines[method][index] for method in methods)
            grid.add_row(Text(printable(column.heading)), *map(_shown, cells))
        return grid


def _shown(cell: Cell | None) -> Text:
    if cell is None:
        return Text("-")
    text = Text(cell.shown, style="bold" if cell.best else "")
    return text.append(f" {cell.spread}", style="dim not bold")
