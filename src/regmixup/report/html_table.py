"""Tables as HTML that the page's script can sort; complete without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from regmixup.report.grid import letter
from regmixup.report.tables import Cell, Table


def row_head(name: str) -> str:
    """The first cell of a line; long names may break after a plus and before a bracket."""
    breakable = escape(name).replace("+", "+<wbr>").replace("(", "<wbr>(")
    return f'<th scope="row" data-value="{escape(name)}">{breakable}</th>'


def sortable(caption: str, heads: Iterable[str], lines: Iterable[str]) -> str:
    """A table in a box of its own, which scrolls where the screen is narrow; every heading is a button that sorts."""
    buttons = "".join(f'<th scope="col"><button type="button" class="sort">{escape(h)}</button></th>' for h in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f'<caption class="legend-text">{escape(caption)}</caption>'
        f"<thead><tr>{buttons}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def to_html(table: Table, name: str) -> str:
    """Every cell with mean ± std, n, p against the reference method, the paper's number and the difference.

    name: unique in the page, for the links between cells and notes. Notes stand below as letters.
    """
    notes = {note: letter(index) for index, note in enumerate(table.grid().notes())}
    lines = [
        f"<tr>{row_head(method)}{''.join(_cell(cell, notes, name) for cell in cells)}</tr>"
        for method, cells in table.lines.items()
    ]
    listed = "".join(f'<li id="{name}-{mark}">{escape(note)}</li>' for note, mark in notes.items())
    drawn = sortable(table.caption, ["method", *(column.heading for column in table.columns)], lines)
    return drawn + (f'<ol class="notes" type="a">{listed}</ol>' if listed else "")


def _cell(cell: Cell | None, notes: Mapping[str, str], name: str) -> str:
    if cell is None:
        return "<td>–</td>"
    marks = " bold" * cell.best + " underline" * cell.best_overall
    links = ",".join(f'<a href="#{name}-{notes[note]}">{notes[note]}</a>' for note in cell.notes)
    lines = [
        f'<span class="mean{marks}">{cell.shown}</span>'
        + (f"<sup>{links}</sup>" if links else "")
        + (f' <span class="std">{cell.spread}</span>' if cell.spread else ""),
        f'<span class="fact">{_seeds(cell)}{_against(cell)}</span>',
    ]
    if cell.paper is not None:
        lines.append(f'<span class="fact">paper {escape(cell.paper.text)}, {cell.difference}</span>')
    return f'<td data-value="{cell.mean:.6g}">{"".join(lines)}</td>'


def _seeds(cell: Cell) -> str:
    return '<span class="single">n 1</span>' if cell.n == 1 else f"n {cell.n}"


def _against(cell: Cell) -> str:
    """Whether, and which way, the cell differs from the reference method's."""
    if cell.against is None:
        return ""
    chance = "p &lt; 0.001" if cell.against.p < 0.001 else f"p {cell.against.p:.2g}"
    if cell.better is None:
        return f" · {chance}"
    verdict = ("good", "▲ better") if cell.better else ("bad", "▼ worse")
    return f' · <span class="{verdict[0]}">{verdict[1]}, {chance}</span>'
