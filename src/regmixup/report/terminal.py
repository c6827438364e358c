"""Tables in the terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from regmixup.report.tables import Table


def render(table: Table, *, title: str, caption: str = "") -> RichTable:
    """A rich table: one line per quantity, one column per method, so that it fits a narrow terminal; best in bold."""
    # Text, not str: square brackets in a title are not markup.
    below = Text(caption) if caption else None
    grid = RichTable(title=Text(title, "bold"), caption=below, box=box.SIMPLE_HEAD, pad_edge=False)
    grid.add_column("", no_wrap=True)
    for method in table.lines:
        grid.add_column(method, justify="right", no_wrap=True)
    for index, column in enumerate(table.columns):
        arrow = {True: " ↑", False: " ↓", None: ""}[column.higher_is_better]
        shown = []
        for cells in table.lines.values():
            cell = cells[index]
            if cell is None:
                shown.append(Text("-"))
                continue
            text = Text(cell.shown, style="bold" if cell.best else "")
            shown.append(text.append(f" {cell.spread}", style="dim not bold"))
        grid.add_row(column.title + arrow, *shown)
    return grid
