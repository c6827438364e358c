"""A table as text: Markdown, LaTeX (booktabs), CSV, and for a terminal.

`regmixup.report.tables` decides what the tables hold; templates/tables.md and tables.tex how they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from regmixup.names import counted, printable
from regmixup.report.aggregation import Cell
from regmixup.report.tables import SelectionTable, Table
from regmixup.storage import csv_lines

WIDE = 6
"""Columns that fit on a page as they are."""
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a line these would be its argument
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "×": r"$\times$", "±": r"$\pm$", "−": "$-$", "–": "--",
    "α": r"$\alpha$", "η": r"$\eta$", "λ": r"$\lambda$", "σ": r"$\sigma$", "₀": "$_0$",
}  # fmt: skip


def to_markdown(table: Table | SelectionTable) -> str:
    """Write a pipe table: best single model bold, best of all underlined; notes as letters, spelled out below."""
    return _TEMPLATES.get_template("tables.md").render(table=table)


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a pipe table of cells that are Markdown already."""
    return "".join(f"{markdown_line(cells)}\n" for cells in (heads, ["---"] * len(heads), *lines))


def markdown_line(cells: Iterable[str]) -> str:
    """Return a line of a pipe table, of cells that are Markdown already."""
    return f"| {' | '.join(cells)} |"


def escape_markdown(text: str) -> str:
    """Escape text so that nothing in it is Markdown.

    >>> print(escape_markdown("a|b *c*"), escape_markdown("1. d"))
    a\\|b \\*c\\* 1\\. d
    """
    signs = "".join(f"\\{c}" if c in "\\|*_<>`#[]&~$!" else c for c in printable(text).strip())
    return re.sub(r"^(\d*)([.)+-])(?=\s)", r"\1\\\2", signs)  # at the start of a line these would begin a list


def to_latex(table: Table | SelectionTable) -> str:
    r"""Write a `table` environment: best single model bold, best of all underlined; notes as letters, listed below.

    It needs \usepackage{booktabs} and, for a table that is scaled down to the page, \usepackage{graphicx}.
    """
    label = re.sub(r"[^A-Za-z0-9:.+-]", "-", table.label)
    return _TEMPLATES.get_template("tables.tex").render(table=table, label=label, wide=len(table.heads) > WIDE)


def escape_latex(text: str) -> str:
    r"""Escape text so that nothing in it is LaTeX; signs that tables use become commands.

    >>> print(escape_latex("AUROC (↑) in %"))
    AUROC ($\uparrow$) in \%
    """
    return "".join(_LATEX.get(character, character) for character in printable(text))


_TEMPLATES = Environment(
    loader=PackageLoader("regmixup.report"),
    autoescape=False,  # the filters below escape what the two formats need
    keep_trailing_newline=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    # LaTeX has braces and comments of its own.
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
)
_TEMPLATES.filters |= {"markdown": escape_markdown, "latex": escape_latex}


def to_csv(settings: Sequence[str], *tables: Sequence[Table]) -> str:
    """Write a line per cell, as fractions: what the tables print, and what they only mark.

    settings: their names. tables: lists of one table per setting.
    """
    names = ("setting", "method", "quantity", "mean", "std", "n", "paper", "paper_table", "p", "test", "best", "notes")
    lines: list[Sequence[object]] = [names]
    for setting, table in [pair for part in tables for pair in zip(settings, part, strict=True)]:
        for method, cells in table.lines.items():
            for column, cell in zip(table.columns, cells, strict=True):
                if cell is None:
                    continue
                paper = (cell.paper.value, cell.paper.table) if cell.paper is not None else ("", "")
                against = (cell.against.p, "welch") if cell.against is not None else ("", "")
                best = ["single"] * cell.best + ["overall"] * cell.best_overall
                std = cell.std if cell.n > 1 else ""
                line = (setting, method, column.title, cell.mean, std, cell.n, *paper, *against)
                words = (*line, " ".join(best), " ".join(cell.notes))
                lines.append([printable(word) if isinstance(word, str) else word for word in words])
    return csv_lines(lines)


@dataclass(frozen=True)
class TerminalTable:
    """A table for rich to print: one line per quantity, one column per method; best in bold.

    Methods that do not fit the terminal follow in further blocks, so that no number is cut.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        blocks, methods = [], list(self.table.lines)
        while methods:
            count = self._fitting(methods, console, options)
            blocks.append(self._block(methods[:count]))
            methods = methods[count:]
        if blocks:
            # Text, not str: square brackets are not markup.
            blocks[0].title = Text(printable(self.table.caption), "bold")
            blocks[-1].caption = Text(self._seeds())
        yield from blocks

    def _seeds(self) -> str:
        """Say what a number of the table is, and over how many seeds: methods may have more or fewer."""
        counts = sorted({cell.n for cells in self.table.lines.values() for cell in cells if cell is not None})
        fewest = f"{counts[0]} to " if len(counts) > 1 else ""
        seeds = f"{fewest}{counted(counts[-1], 'seed')}" if counts else "no seeds"
        return f"percent, mean ± std over {seeds}, best in bold"

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
        block = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        block.add_column("", overflow="fold")
        for method in methods:
            block.add_column(Text(printable(method)), justify="right", no_wrap=True)
        for index, column in enumerate(self.table.columns):
            cells = (self.table.lines[method][index] for method in methods)
            block.add_row(Text(printable(column.heading)), *map(_terminal_cell, cells))
        return block


def _terminal_cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text("-")
    text = Text(cell.shown, style="bold" if cell.best else "")
    return text.append(f" {cell.spread}", style="dim not bold")
