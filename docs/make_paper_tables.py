"""Write the paper's tables, laid out as in the paper, with what is wrong in them: docs/paper-tables.md.

python docs/make_paper_tables.py
"""

from __future__ import annotations

from pathlib import Path

from regmixup.paper import COSTS, SLIPS, TABLES
from regmixup.report.writers import to_markdown

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
print(TABLES["2"].layout().caption)
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
            cells = "; ".join(f"Table {at.table}, {at.row}, {at.column}" for at in slip.cells)
            lines.append(f"- {slip.sentence} ({slip.place or cells})")
    return "\n".join([title, "", *lines, ""])


def _costs() -> str:
    told = ", ".join(f"{method} {factor:g}" for method, factor in COSTS.items())
    return f"## Cost\n\nTraining time over that of plain cross-entropy, from the text (Section 4): {told}.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
