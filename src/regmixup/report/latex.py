"""Tables as LaTeX, for the package booktabs."""

from __future__ import annotations

import re

from regmixup.names import printable
from regmixup.report.grid import Block, Drawable, GridCell, Heading, letter

WIDE = 6
"""Columns that fit on a page as they are."""
_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row these would be its argument
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "×": r"$\times$", "±": r"$\pm$", "−": "$-$", "–": "--",
    "α": r"$\alpha$", "η": r"$\eta$", "λ": r"$\lambda$", "σ": r"$\sigma$", "₀": "$_0$",
}  # fmt: skip


def to_latex(table: Drawable) -> str:
    r"""A `table` environment: best single model bold, best of all underlined; notes as letters, spelled out below.

    It needs \usepackage{booktabs} and, for a table that is scaled down to the page, \usepackage{graphicx}.
    """
    grid = table.grid()
    notes = {note: letter(index) for index, note in enumerate(grid.notes())}
    lines = [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{escape(grid.caption)}}}"] if grid.caption else []
    lines += [rf"\label{{{re.sub(r'[^A-Za-z0-9:.+-]', '-', grid.label)}}}"] if grid.label else []
    lines += [r"\resizebox{\textwidth}{!}{%"] if (wide := grid.width > WIDE) else []
    lines += [rf"\begin{{tabular}}{{{'l' * grid.num_labels}{'r' * (grid.width - grid.num_labels)}}}", r"\toprule"]
    for heading in grid.head:
        lines += _heading(heading, grid.num_labels)
    for block in grid.blocks:
        lines += [r"\midrule", *_block(block, grid.width, notes)]
    lines += [r"\bottomrule", r"\end{tabular}" + ("}" if wide else "")]
    below = [escape(remark) for remark in grid.remarks]
    below += [rf"\textsuperscript{{{mark}}} {escape(note)}" for note, mark in notes.items()]
    if below:
        lines += ["", r"\smallskip", r"\raggedright\footnotesize", " \\\\\n".join(below)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _heading(line: tuple[Heading, ...], num_labels: int) -> list[str]:
    """A line of headings, and rules under those that stand over several columns."""
    cells, rules, start = [], [], 1
    for heading in line:
        text = rf"\textbf{{{escape(heading.text)}}}" if heading.text else ""
        if start > num_labels and heading.text:
            text = rf"\multicolumn{{{heading.width}}}{{c}}{{{text}}}"
        cells.append(text + " &" * (heading.width - 1 if not heading.text else 0))
        if heading.width > 1 and heading.text:
            rules.append(rf"\cmidrule(lr){{{start}-{start + heading.width - 1}}}")
        start += heading.width
    return [" & ".join(cells) + r" \\", *([" ".join(rules)] if rules else [])]


def _block(block: Block, width: int, notes: dict[str, str]) -> list[str]:
    lines = [rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escape(block.title)}}}}} \\"] if block.title else []
    for line in block.lines:
        cells = [*map(escape, line.labels), *(_cell(cell, notes) for cell in line.cells)]
        lines.append(" & ".join(cells) + r" \\")
        if any(cell.below for cell in line.cells):
            below = [rf"{{\scriptsize {escape(cell.below)}}}" if cell.below else "" for cell in line.cells]
            lines.append(" & ".join([*[""] * len(line.labels), *below]) + r" \\")
    return lines


def _cell(cell: GridCell, notes: dict[str, str]) -> str:
    text = escape(cell.text)
    if cell.underline:
        text = rf"\underline{{{text}}}"
    if cell.bold:
        text = rf"\textbf{{{text}}}"
    if cell.notes:
        text += rf"\textsuperscript{{{','.join(notes[note] for note in cell.notes)}}}"
    return text + (f" {escape(cell.beside)}" if cell.beside else "")


def escape(text: str) -> str:
    r"""Text in which nothing is markup, and the signs that tables use have their commands.

    >>> print(escape("AUROC (↑) in %"))
    AUROC ($\uparrow$) in \%
    """
    return "".join(_SPECIAL.get(character, character) for character in printable(text))
