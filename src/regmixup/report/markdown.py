"""Tables as Markdown."""

from __future__ import annotations

import re

from regmixup.names import printable
from regmixup.report.grid import Drawable, Grid, GridCell, letter


def to_markdown(table: Drawable) -> str:
    """A pipe table: best single model bold, best of all underlined; notes as letters, spelled out below.

    Markdown has one line of headings, so those above a column are stacked in it, and one that stands over all columns
    is put before the table.
    """
    grid = table.grid()
    notes = {note: letter(index) for index, note in enumerate(grid.notes())}
    title, columns = _headings(grid)
    lines = [_row(columns), _row([":--"] * grid.num_labels + ["--:"] * (grid.width - grid.num_labels))]
    for block in grid.blocks:
        if block.title:
            lines.append(_row([f"*{escape(block.title)}*"] + [""] * (grid.width - 1)))
        lines += [
            _row([*map(escape, line.labels), *(_cell(cell, notes) for cell in line.cells)]) for line in block.lines
        ]
    parts = ["\n".join(lines)]
    if grid.caption or title:
        parts.insert(0, ". ".join(escape(text) for text in (grid.caption, *title) if text) + ".")
    parts += [escape(remark) for remark in grid.remarks]
    parts += ["\n".join(f"- <sup>{mark}</sup> {escape(note)}" for note, mark in notes.items())] if notes else []
    return "\n\n".join(parts) + "\n"


def _headings(grid: Grid) -> tuple[list[str], list[str]]:
    """Headings that stand over every column of numbers, and the stacked ones of each column."""
    title: list[str] = []
    columns: list[list[str]] = [[] for _ in range(grid.width)]
    for line in grid.head:
        start = 0
        for heading in line:
            if 1 < heading.width == grid.width - grid.num_labels:
                title.append(heading.text)
            elif heading.text:
                for column in columns[start : start + heading.width]:
                    column.append(escape(heading.text))
            start += heading.width
    return title, ["<br>".join(column) for column in columns]


def _cell(cell: GridCell, notes: dict[str, str]) -> str:
    text = escape(cell.text)
    if cell.underline:
        text = f"<ins>{text}</ins>"
    if cell.bold:
        text = f"**{text}**"
    if cell.notes:
        text += f"<sup>{','.join(notes[note] for note in cell.notes)}</sup>"
    if cell.beside:
        text += f" {escape(cell.beside)}"
    return text + (f"<br>{escape(cell.below)}" if cell.below else "")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Text in which nothing is markup.

    >>> print(escape("a|b *c*"), escape("1. d"))
    a\\|b \\*c\\* 1\\. d
    """
    signs = "".join(f"\\{c}" if c in "\\|*_<>`#[]&~$!" else c for c in printable(text).strip())
    return re.sub(r"^(\d*)([.)+-])(?=\s)", r"\1\\\2", signs)  # at the start of a line these would begin a list
