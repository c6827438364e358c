"""Tables as text: their layout, which knows no file format, and the writers of Markdown and LaTeX (booktabs)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from regmixup.names import printable

WIDE = 6
"""Columns that fit on a page as they are."""
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row these would be its argument
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "×": r"$\times$", "±": r"$\pm$", "−": "$-$", "–": "--",
    "α": r"$\alpha$", "η": r"$\eta$", "λ": r"$\lambda$", "σ": r"$\sigma$", "₀": "$_0$",
}  # fmt: skip


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
        return len(self.blocks[0].lines[0].labels)

    @property
    def width(self) -> int:
        """Return the number of columns, those of the labels included."""
        return sum(heading.width for heading in self.head[0])

    def notes(self) -> dict[str, str]:
        """Return every note once, in order of appearance, with the letter that marks it."""
        cells = (cell for block in self.blocks for line in block.lines for cell in line.cells)
        found = dict.fromkeys(note for cell in cells for note in cell.notes)
        return {note: letter(index) for index, note in enumerate(found)}


class Drawable(Protocol):
    """A table that the writers can write: one of the paper's or our own."""

    def layout(self) -> TableLayout: ...


def letter(index: int) -> str:
    """Return the mark of a note: a, b, ..., z, aa, ab, ...

    >>> letter(0), letter(25), letter(26)
    ('a', 'z', 'aa')
    """
    return (letter(index // 26 - 1) if index >= 26 else "") + chr(ord("a") + index % 26)


def to_markdown(table: Drawable) -> str:
    """Write a pipe table: best single model bold, best of all underlined; notes as letters, spelled out below.

    Markdown has one line of headings: those above a column are stacked in it, and one over all columns comes before
    the table.
    """
    laid = table.layout()
    notes = laid.notes()
    title, columns = _markdown_headings(laid)
    lines = [
        _markdown_row(columns),
        _markdown_row([":--"] * laid.num_labels + ["--:"] * (laid.width - laid.num_labels)),
    ]
    for block in laid.blocks:
        if block.title:
            lines.append(_markdown_row([f"*{escape_markdown(block.title)}*"] + [""] * (laid.width - 1)))
        lines += [
            _markdown_row([*map(escape_markdown, line.labels), *(_markdown_cell(cell, notes) for cell in line.cells)])
            for line in block.lines
        ]
    parts = ["\n".join(lines)]
    if laid.caption or title:
        parts.insert(0, ". ".join(escape_markdown(text) for text in (laid.caption, *title) if text) + ".")
    parts += [escape_markdown(remark) for remark in laid.remarks]
    if notes:
        parts.append("\n".join(f"- <sup>{mark}</sup> {escape_markdown(note)}" for note, mark in notes.items()))
    return "\n\n".join(parts) + "\n"


def _markdown_headings(laid: TableLayout) -> tuple[list[str], list[str]]:
    """Return the headings over all columns of numbers, and the stacked ones of each column."""
    title: list[str] = []
    columns: list[list[str]] = [[] for _ in range(laid.width)]
    for line in laid.head:
        start = 0
        for heading in line:
            if 1 < heading.width == laid.width - laid.num_labels:
                title.append(heading.text)
            elif heading.text:
                for column in columns[start : start + heading.width]:
                    column.append(escape_markdown(heading.text))
            start += heading.width
    return title, ["<br>".join(column) for column in columns]


def _markdown_cell(cell: LayoutCell, notes: dict[str, str]) -> str:
    text = escape_markdown(cell.text)
    if cell.underline:
        text = f"<ins>{text}</ins>"
    if cell.bold:
        text = f"**{text}**"
    if cell.notes:
        text += f"<sup>{','.join(notes[note] for note in cell.notes)}</sup>"
    if cell.beside:
        text += f" {escape_markdown(cell.beside)}"
    return text + (f"<br>{escape_markdown(cell.below)}" if cell.below else "")


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a pipe table of cells that are Markdown already."""
    return "".join(f"{_markdown_row(cells)}\n" for cells in (heads, ["---"] * len(heads), *lines))


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Escape text so that nothing in it is Markdown.

    >>> print(escape_markdown("a|b *c*"), escape_markdown("1. d"))
    a\\|b \\*c\\* 1\\. d
    """
    signs = "".join(f"\\{c}" if c in "\\|*_<>`#[]&~$!" else c for c in printable(text).strip())
    return re.sub(r"^(\d*)([.)+-])(?=\s)", r"\1\\\2", signs)  # at the start of a line these would begin a list


def to_latex(table: Drawable) -> str:
    r"""Write a `table` environment: best single model bold, best of all underlined; notes as letters, listed below.

    It needs \usepackage{booktabs} and, for a table that is scaled down to the page, \usepackage{graphicx}.
    """
    laid = table.layout()
    notes = laid.notes()
    lines = [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{escape_latex(laid.caption)}}}"] if laid.caption else []
    lines += [rf"\label{{{re.sub(r'[^A-Za-z0-9:.+-]', '-', laid.label)}}}"] if laid.label else []
    lines += [r"\resizebox{\textwidth}{!}{%"] if (wide := laid.width > WIDE) else []
    lines += [rf"\begin{{tabular}}{{{'l' * laid.num_labels}{'r' * (laid.width - laid.num_labels)}}}", r"\toprule"]
    for heading in laid.head:
        lines += _latex_heading(heading, laid.num_labels)
    for block in laid.blocks:
        lines += [r"\midrule", *_latex_block(block, laid.width, notes)]
    lines += [r"\bottomrule", r"\end{tabular}" + ("}" if wide else "")]
    below = [escape_latex(remark) for remark in laid.remarks]
    below += [rf"\textsuperscript{{{mark}}} {escape_latex(note)}" for note, mark in notes.items()]
    if below:
        lines += ["", r"\smallskip", r"\raggedright\footnotesize", " \\\\\n".join(below)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_heading(line: tuple[Heading, ...], num_labels: int) -> list[str]:
    """Return a line of headings, and rules under those over several columns."""
    cells, rules, start = [], [], 1
    for heading in line:
        text = rf"\textbf{{{escape_latex(heading.text)}}}" if heading.text else ""
        if start > num_labels and heading.text:
            text = rf"\multicolumn{{{heading.width}}}{{c}}{{{text}}}"
        cells.append(text + " &" * (heading.width - 1 if not heading.text else 0))
        if heading.width > 1 and heading.text:
            rules.append(rf"\cmidrule(lr){{{start}-{start + heading.width - 1}}}")
        start += heading.width
    return [" & ".join(cells) + r" \\", *([" ".join(rules)] if rules else [])]


def _latex_block(block: Block, width: int, notes: dict[str, str]) -> list[str]:
    lines = [rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escape_latex(block.title)}}}}} \\"] if block.title else []
    for line in block.lines:
        cells = [*map(escape_latex, line.labels), *(_latex_cell(cell, notes) for cell in line.cells)]
        lines.append(" & ".join(cells) + r" \\")
        if any(cell.below for cell in line.cells):
            below = [rf"{{\scriptsize {escape_latex(cell.below)}}}" if cell.below else "" for cell in line.cells]
            lines.append(" & ".join([*[""] * len(line.labels), *below]) + r" \\")
    return lines


def _latex_cell(cell: LayoutCell, notes: dict[str, str]) -> str:
    text = escape_latex(cell.text)
    if cell.underline:
        text = rf"\underline{{{text}}}"
    if cell.bold:
        text = rf"\textbf{{{text}}}"
    if cell.notes:
        text += rf"\textsuperscript{{{','.join(notes[note] for note in cell.notes)}}}"
    return text + (f" {escape_latex(cell.beside)}" if cell.beside else "")


def escape_latex(text: str) -> str:
    r"""Escape text so that nothing in it is LaTeX; signs that tables use become commands.

    >>> print(escape_latex("AUROC (↑) in %"))
    AUROC ($\uparrow$) in \%
    """
    return "".join(_LATEX.get(character, character) for character in printable(text))
