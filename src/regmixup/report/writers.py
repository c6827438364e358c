"""A table as text: Markdown, LaTeX (booktabs), CSV, and for a terminal.

`regmixup.report.tables` decides what the tables hold; templates/tables.md and tables.tex how they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from regmixup.names import printable
from regmixup.report.aggregation import Cell
from regmixup.report.tables import Table
from regmixup.storage import csv_lines

WIDE = 6
"""Columns that fit on a page as they are."""
_CELL_WIDTH = len("97.46 ± 10.03") + 2
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a line these would be its argument
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "×": r"$\times$", "±": r"$\pm$", "−": "$-$", "–": "--",
    "α": r"$\alpha$", "η": r"$\eta$", "λ": r"$\lambda$", "σ": r"$\sigma$", "₀": "$_0$",
}  # fmt: skip


def to_markdown(table: Table) -> str:
    """Write a pipe table: best single model bold, best of all underlined; notes as letters, spelled out below."""
    return _TEMPLATES.get_template("tables.md").render(table=table)


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a pipe table of cells that are Markdown already."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, ["---"] * len(heads), *lines))


def escape_markdown(text: str) -> str:
    """Escape text so that nothing in it is Markdown.

    >>> print(escape_markdown("a|b *c*"), escape_markdown("1. d"))
    a\\|b \\*c\\* 1\\. d
    """
    signs = "".join(f"\\{c}" if c in "\\|*_<>`#[]&~$!" else c for c in printable(text).strip())
    return re.sub(r"^(\d*)([.)+-])(?=\s)", r"\1\\\2", signs)  # at the start of a line these would begin a list


def to_latex(table: Table) -> str:
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


def to_csv(settings: Sequence[str], tables: Sequence[Sequence[Table]]) -> str:
    """Write a line per cell, as fractions: what the tables print, and what they only mark.

    settings: their names. tables: those of every setting.
    """
    of_cells = ("mean", "std", "n", "paper", "paper_table", "p", "test", "best", "notes")
    lines: list[Sequence[object]] = [("setting", "method", "quantity", *of_cells, "score")]
    for setting, tables_of_setting in zip(settings, tables, strict=True):
        for table in tables_of_setting:
            for method, cells in table.lines.items():
                for column, cell in zip(table.columns, cells, strict=True):
                    if cell is not None:
                        score = table.design.with_score(column.quantity, method).score
                        words = (setting, method, column.title, *_csv_cells(cell), score)
                        lines.append([printable(word) if isinstance(word, str) else word for word in words])
    return csv_lines(lines)


def _csv_cells(cell: Cell) -> list[object]:
    """Return mean, std, n, the paper's number and table, p and test, best, notes."""
    paper = (cell.paper.value, cell.paper.table) if cell.paper is not None else ("", "")
    against = (cell.p, "welch") if cell.p is not None else ("", "")
    best = [word for word, marked in (("single", cell.best), ("overall", cell.best_overall)) if marked]
    std = cell.std if cell.n > 1 else ""
    return [cell.mean, std, cell.n, *paper, *against, " ".join(best), " ".join(cell.notes)]


def print_table(table: Table, console: Console) -> None:
    """Print a line per quantity and a column per method; best in bold.

    Methods that do not fit the terminal follow in further blocks, so that no number is cut.
    """
    methods = [printable(method) for method in table.lines]
    heads = [printable(head) for head in table.heads[1:]]
    cell_width = max(_CELL_WIDTH, *(len(method) + 2 for method in methods))
    count = max(1, (console.width - max(map(len, heads), default=0)) // cell_width)
    console.print(Text(printable(table.caption), "bold"))  # Text, not str: square brackets are not markup
    for start in range(0, len(methods), count):
        block = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        block.add_column("", overflow="fold")
        for method in methods[start : start + count]:
            block.add_column(Text(method), justify="right", no_wrap=True)
        lines = [*table.lines.values()][start : start + count]
        for head, *cells in zip(heads, *lines, strict=True):
            block.add_row(Text(head), *map(_terminal_cell, cells))
        console.print(block)
    legend = f"{printable(table.units)}, mean ± std over seeds, best in bold"
    if scores := table.describe_scores():
        legend += f"; AUROC {printable(scores)}"
    console.print(Text(legend))


def _terminal_cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text("-")
    text = Text(cell.shown, style="bold" if cell.best else "")
    return text.append(f" {cell.spread}", style="dim not bold")
