"""Writers of tables: Markdown, LaTeX (booktabs), CSV and the terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from regmixup.names import printable
from regmixup.report.aggregation import Cell
from regmixup.report.layout import Block, Drawable, Heading, LayoutCell, TableLayout, letter
from regmixup.report.tables import Table
from regmixup.storage import csv_text

WIDE = 6
"""Columns that fit on a page as they are."""
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row these would be its argument
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "×": r"$\times$", "±": r"$\pm$", "−": "$-$", "–": "--",
    "α": r"$\alpha$", "η": r"$\eta$", "λ": r"$\lambda$", "σ": r"$\sigma$", "₀": "$_0$",
}  # fmt: skip


def to_markdown(table: Drawable) -> str:
    """Write a pipe table: best single model bold, best of all underlined; notes as letters, spelled out below.

    Markdown has one line of headings: those above a column are stacked in it, and one over all columns comes before
    the table.
    """
    laid = table.layout()
    notes = {note: letter(index) for index, note in enumerate(laid.notes())}
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
    parts += (
        ["\n".join(f"- <sup>{mark}</sup> {escape_markdown(note)}" for note, mark in notes.items())] if notes else []
    )
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


def _markdown_row(cells: list[str]) -> str:
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
    notes = {note: letter(index) for index, note in enumerate(laid.notes())}
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


def to_csv(settings: Sequence[str], *tables: Sequence[Table]) -> str:
    """Write a line per cell, as fractions: what the tables print, and what they only mark.

    settings: their names. tables: lists of one table per setting.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("setting", "method", "quantity", "mean", "std", "n", "paper", "paper_table", "p", "test", "best", "notes")
    writer.writerow(names)
    for setting, table in [place for part in tables for place in zip(settings, part, strict=True)]:
        for method, cells in table.lines.items():
            for column, cell in zip(table.columns, cells, strict=True):
                if cell is None:
                    continue
                best = " ".join(name for name, own in (("single", cell.best), ("overall", cell.best_overall)) if own)
                paper = (cell.paper.value, cell.paper.table) if cell.paper is not None else ("", "")
                against = (cell.against.p, cell.against.test) if cell.against is not None else ("", "")
                std = cell.std if cell.n > 1 else ""
                line = (setting, method, column.title, cell.mean, std, cell.n, *paper, *against, best)
                words = [*line, " ".join(cell.notes)]
                writer.writerow([csv_text(printable(w)) if isinstance(w, str) else w for w in words])
    return text.getvalue()


@dataclass(frozen=True)
class TerminalTable:
    """A table for rich to print: one line per quantity, one column per method; best in bold.

    Methods that do not fit the terminal follow in further blocks, so that no number is cut.
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
        """Return how many of the methods fit side by side; at least one, with the names of quantities folded."""
        unbounded = options.update(width=10_000)
        fits = (
            count
            for count in range(len(methods), 1, -1)
            if console.measure(self._block(methods[:count]), options=unbounded).maximum <= options.max_width
        )
        return next(fits, 1)

    def _block(self, methods: list[str]) -> RichTable:
        drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        drawn.add_column("", overflow="fold")
        for method in methods:
            drawn.add_column(Text(printable(method)), justify="right", no_wrap=True)
        for index, column in enumerate(self.table.columns):
            cells = (self.table.lines[method][index] for method in methods)
            drawn.add_row(Text(printable(column.heading)), *map(_terminal_cell, cells))
        return drawn


def _terminal_cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text("-")
    text = Text(cell.shown, style="bold" if cell.best else "")
    return text.append(f" {cell.spread}", style="dim not bold")
