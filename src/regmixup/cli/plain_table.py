"""A table of words in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from regmixup.names import printable


def plain_table(title: str, heads: Iterable[str], lines: Iterable[Sequence[str]]) -> Table:
    """Lines under their heads; long cells are folded, and square brackets are no markup."""
    table = Table(title=Text(printable(title), "bold"), box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(Text(head), overflow="fold")
    for line in lines:
        table.add_row(*(Text(printable(cell)) for cell in line))
    return table
