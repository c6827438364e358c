"""Write the paper's tables, laid out as in the paper, with what is wrong in them: docs/paper-tables.md.

python docs/make_paper_tables.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "results"))  # slips.py

from slips import SLIPS, slips_by_cell

from regmixup.paper import COSTS, TABLES, At, PaperTable
from regmixup.report.significance import Marks, find_best
from regmixup.report.tables import letter
from regmixup.report.writers import escape_markdown, markdown_line
from regmixup.types import higher_is_better

PAGE = Path(__file__).parent / "paper-tables.md"

INTRODUCTION = """\
# The paper's tables

The tables of Pinto et al., 2022, as data: `regmixup.paper`. Numbers, labels and headings are as printed, and
captions ours. The numbers are means over 5 seeds, and the paper gives no spread. **Bold** is the best single model and
<ins>underlined</ins> the best of all, in tables that have an ensemble; both are computed here, from the numbers. A
letter marks what to know about a cell. This page is written by `python docs/make_paper_tables.py`.

```python
from regmixup.paper import TABLES, paper_value

found = paper_value(
    method="regmixup", network="wrn28-10", train_set="cifar10/train", dataset="cifar10/test", metric="accuracy"
)
assert (found.value, found.table, found.slip) == (0.9746, "1, 2, 18", None)
print(TABLES["2"].caption)
```
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Slips\n", _slips("number"), _slips("mark"), _slips("text"), _costs()]
    parts += [f"## Table {table.number}\n\n{to_markdown(table)}" for table in TABLES.values()]
    return "\n".join(parts)


def _slips(kind: str) -> str:
    """The slips of one kind, each with its places."""
    title = {
        "number": "Numbers that stand twice where two are expected, or contradict each other. Do not chase them.",
        "mark": "Best numbers that the paper does not mark, or others that it does.",
        "text": "Statements of the text that the tables contradict.",
    }[kind]
    lines = []
    for slip in SLIPS:
        if slip.kind == kind:
            cells = "; ".join(f"Table {at.table}, {at.line}, {at.column}" for at in slip.cells)
            lines.append(f"- {slip.sentence} ({slip.place or cells})")
    return "\n".join([title, "", *lines, ""])


def _costs() -> str:
    told = ", ".join(f"{method} {factor:g}" for method, factor in COSTS.items())
    return f"## Cost\n\nTraining time over that of plain cross-entropy, from the text (Section 4): {told}.\n"


def best(table: PaperTable) -> dict[At, Marks]:
    """The marks that the numbers ask for; none where the paper marks nothing."""
    marks = {}
    for section in table.sections if table.marked else ():
        ensembles = [line.name.startswith("DE") for line in section.lines]
        for index, key in enumerate(section.keys):
            numbers = [line.cells[index].number for line in section.lines]
            found = find_best(numbers, ensembles, higher_is_better=higher_is_better(key.metric))
            for line, mark in zip(section.lines, found, strict=True):
                marks[At(table.number, line.name, key.name)] = mark
    return marks


def to_markdown(table: PaperTable) -> str:
    """A table of the paper as a pipe table; slips are notes.

    Markdown has one line of headings: those above a column are stacked in it, and one over all columns comes before
    the table.
    """
    marks, slips = best(table), slips_by_cell("number", "mark")
    places = [At(table.number, line.name, key.name) for line, key, _ in table.cells()]
    notes = {note: letter(n) for n, note in enumerate(dict.fromkeys(s for at in places for s in slips.get(at, ())))}
    labels, keys = len(table.sections[0].lines[0].labels), len(table.sections[0].keys)
    above, columns = _headings(table, labels, keys)
    lines = [markdown_line(columns), markdown_line([":--"] * labels + ["--:"] * keys)]
    for section in table.sections:
        if section.title:
            lines.append(markdown_line([f"*{escape_markdown(section.title)}*"] + [""] * (labels + keys - 1)))
        for group in section.groups:
            repeated = ""
            for line in group:
                shown = ["" if line.labels[0] == repeated else line.labels[0], *line.labels[1:]]
                repeated = line.labels[0]
                cells = []
                for key, cell in zip(section.keys, line.cells, strict=True):
                    at = At(table.number, line.name, key.name)
                    letters = [notes[sentence] for sentence in slips.get(at, ())]
                    cells.append(_cell(cell.text, marks.get(at, Marks()), letters))
                lines.append(markdown_line([*map(escape_markdown, shown), *cells]))
    title = ". ".join(map(escape_markdown, [table.caption, *above]))
    parts = [f"{title}.", "\n".join(lines)]
    if notes:
        parts.append("\n".join(f"- <sup>{mark}</sup> {escape_markdown(note)}" for note, mark in notes.items()))
    return "\n\n".join(parts) + "\n"


def headings(table: PaperTable) -> list[list[tuple[str, int]]]:
    """The lines of headings, each a text and the number of columns that it stands over."""
    lines = [[part.strip().partition(":") for part in line.split("|")] for line in table.head.strip().splitlines()]
    return [[(text, int(width or 1)) for text, _, width in line] for line in lines]


def _headings(table: PaperTable, labels: int, keys: int) -> tuple[list[str], Iterator[str]]:
    """The headings over all columns of numbers, and the stacked ones of each column."""
    above: list[str] = []
    columns: list[list[str]] = [[] for _ in range(labels + keys)]
    for line in headings(table):
        start = 0
        for text, width in line:
            if 1 < width == keys:
                above.append(text)
            elif text:
                for column in columns[start : start + width]:
                    column.append(escape_markdown(text))
            start += width
    return above, map("<br>".join, columns)


def _cell(text: str, marks: Marks, letters: list[str]) -> str:
    text = escape_markdown(text)
    if marks.underline:
        text = f"<ins>{text}</ins>"
    if marks.bold:
        text = f"**{text}**"
    return text + (f"<sup>{','.join(letters)}</sup>" if letters else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
