"""The layout of a table, before it is written as Markdown or LaTeX. Knows no file format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Heading:
    """A heading over `width` columns."""

    text: str
    width: int = 1


@dataclass(frozen=True)
class LayoutCell:
    """beside: follows the text, never bold. below: a second, smaller line. notes: sentences about the cell."""

    text: str
    bold: bool = False
    underline: bool = False
    beside: str = ""
    below: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """labels: the texts left of the cells."""

    labels: tuple[str, ...]
    cells: tuple[LayoutCell, ...]


@dataclass(frozen=True)
class Block:
    """Lines between two rules, under a title where they have one."""

    lines: tuple[Line, ...]
    title: str = ""


@dataclass(frozen=True)
class TableLayout:
    """head: lines of headings, each over all columns, the labels' included. remarks: apply to all cells."""

    head: tuple[tuple[Heading, ...], ...]
    blocks: tuple[Block, ...]
    caption: str = ""
    label: str = ""
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        widths = {sum(heading.width for heading in line) for line in self.head}
        widths |= {len(line.labels) + len(line.cells) for block in self.blocks for line in block.lines}
        if len(widths) != 1:
            raise ValueError(f"every line of a table must have as many columns, got {sorted(widths)}: {self.caption}")

    @property
    def num_labels(self) -> int:
        """Return how many columns hold labels."""
        return len(self.blocks[0].lines[0].labels)

    @property
    def width(self) -> int:
        """Return the number of columns, those of the labels included."""
        return sum(heading.width for heading in self.head[0])

    def notes(self) -> list[str]:
        """Return every note once, in order of appearance."""
        cells = (cell for block in self.blocks for line in block.lines for cell in line.cells)
        return list(dict.fromkeys(note for cell in cells for note in cell.notes))


class Drawable(Protocol):
    """A table that the writers can write: one of the paper's or our own."""

    def layout(self) -> TableLayout: ...


def letter(index: int) -> str:
    """Return the mark of a note: a, b, ..., z, aa, ab, ...

    >>> letter(0), letter(25), letter(26)
    ('a', 'z', 'aa')
    """
    return (letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)
