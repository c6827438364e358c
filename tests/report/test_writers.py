"""The writers: what they write reads back as what went in."""

import io
import re

import pytest
from rich.console import Console

from regmixup.paper import SLIPS, TABLES
from regmixup.report.aggregation import Cell, Quantity
from regmixup.report.output import TerminalTable
from regmixup.report.significance import find_best
from regmixup.report.tables import Column, Table
from regmixup.report.writers import Block, Heading, LayoutCell, Line, TableLayout, to_latex, to_markdown

from .reading import Read, check_latex, read_latex, read_markdown

PAPER = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


class Drawn:
    """A table that is already a grid."""

    def __init__(self, *args, **fields):
        self._grid = TableLayout(*args, **fields)

    def layout(self):
        return self._grid


def expected_rows(table):
    """A paper's table as rows of (labels, numbers, bold, underline), "rule" between groups; straight from the data."""
    best = table.best()
    for section in table.sections:
        for index, group in enumerate(section.groups):
            yield "rule"
            if section.title and index == 0:
                yield section.title
            for row in group:
                marks = [best.get((row.name, key.name), (False, False)) for key in section.keys]
                yield row.labels, [(cell.text, *mark) for cell, mark in zip(row.cells, marks, strict=True)]


def without_repeated_label(labels, above):
    return ["" if labels[0] == above else labels[0], *labels[1:]]


@PAPER
def test_latex_has_the_papers_layout(table):
    text = to_latex(table)
    check_latex(text)
    rows = read_latex(text)
    count = len(table.head)
    num_labels = len(table.sections[0].rows[0].labels)
    for read, line in zip(rows[:count], table.head, strict=True):
        assert [(cell.text, cell.width) for cell in read] == [(heading.text, heading.width) for heading in line]
    above = ""
    for read, wanted in zip(rows[count:], expected_rows(table), strict=True):
        if wanted == "rule":
            assert read == "rule"
            above = ""
        elif isinstance(wanted, str):
            assert [cell.text for cell in read] == [wanted]
        else:
            labels, cells = wanted
            assert [cell.text for cell in read[:num_labels]] == without_repeated_label(labels, above)
            assert [(cell.text, cell.bold, cell.underline) for cell in read[num_labels:]] == cells
            above = labels[0]


@PAPER
def test_markdown_has_the_same_rows_and_stacked_headings(table):
    head, dashes, *rows = read_markdown(to_markdown(table))
    num_labels = len(table.sections[0].rows[0].labels)
    assert [cell.text for cell in dashes] == [":--"] * num_labels + ["--:"] * (len(head) - num_labels)
    above, left = "", iter(rows)
    for wanted in expected_rows(table):
        if wanted == "rule":
            above = ""
            continue
        read = next(left)
        if isinstance(wanted, str):
            assert [cell.text for cell in read] == [f"*{wanted}*"] + [""] * (len(head) - 1)
            continue
        labels, cells = wanted
        assert [cell.text for cell in read[:num_labels]] == without_repeated_label(labels, above)
        assert [(cell.text, cell.bold, cell.underline) for cell in read[num_labels:]] == cells
        above = labels[0]
    assert next(left, None) is None


def test_headings_of_markdown_are_stacked_and_one_over_all_columns_comes_first():
    text = to_markdown(TABLES["2"])
    assert text.splitlines()[0].endswith("CIFAR-100. IND Accuracy.")
    head = read_markdown(text)[0]
    assert head[1].text == "WRN28-10<br>C10 (Test)<br>Accuracy (↑)"
    assert head[4].text == "RN50<br>C100 (Test)<br>Accuracy (↑)"


@pytest.mark.parametrize("write", [to_latex, to_markdown])
def test_every_slip_in_a_cell_is_a_note_of_its_table(write):
    for number, table in TABLES.items():
        text = write(table)
        plain = re.sub(r"\\(.)", r"\1", text)
        for slip in SLIPS:
            assert (slip.sentence in plain) == any(at.table == number for at in slip.cells)


def test_notes_are_lettered_in_order_and_shared():
    one, two = "First.", "Second."
    cells = (LayoutCell("1", notes=(two,)), LayoutCell("2", notes=(one, two)), LayoutCell("3"))
    table = Drawn(((Heading("m"), Heading("x"), Heading("y"), Heading("z")),), (Block((Line(("a",), cells),)),))
    for read, text in ((read_latex, to_latex(table)), (read_markdown, to_markdown(table))):
        row = read(text)[-1]
        assert [cell.notes for cell in row[1:]] == ["a", "b,a", ""]
        assert text.index("Second.") < text.index("First.")


HOSTILE = r"50% of $x_1$ & {a}#b\c ~^ <i> | *s* [t]"


def test_nothing_in_a_text_is_markup():
    table = Drawn(
        ((Heading("m"), Heading(HOSTILE)),),
        (Block((Line(("[1]",), (LayoutCell("1", beside=HOSTILE, below=HOSTILE),)), Line(("*",), (LayoutCell("2"),)))),),
        caption=HOSTILE,
        remarks=(HOSTILE,),
    )
    latex = to_latex(table)
    check_latex(latex)
    assert not re.search(r"\\\\\s*[\[*]", latex)
    assert len(read_latex(latex)) == 5
    assert [len(row) for row in read_markdown(to_markdown(table))] == [2, 2, 2, 2]
    assert "<i>" not in re.sub(r"\\<i\\>", "", to_markdown(table))


def test_a_second_line_is_under_its_cell():
    cells = (LayoutCell("1", below="paper 2"), LayoutCell("3"))
    table = Drawn(((Heading("m"), Heading("x"), Heading("y")),), (Block((Line(("a",), cells),)),))
    assert read_latex(to_latex(table))[-1][1] == Read(r"{\scriptsize paper 2")
    assert read_markdown(to_markdown(table))[-1][1].text == "1<br>paper 2"


def test_lines_of_different_length_are_refused():
    with pytest.raises(ValueError, match=r"as many columns, got \[2, 3\]"):
        TableLayout(((Heading("m"), Heading("x", 2)),), (Block((Line(("a",), (LayoutCell("1"),)),)),))


@pytest.mark.parametrize("higher", [True, False])
def test_best_single_and_best_of_all(higher):
    sign = 1 if higher else -1
    values = [sign * v if v is not None else None for v in (1.0, 3.0, 3.0, None, 3.0, 2.0)]
    ensembles = [False, False, False, False, True, True]
    marks = find_best(values, ensembles, higher_is_better=higher)
    assert [m.bold for m in marks] == [False, True, True, False, False, False]
    assert [m.underline for m in marks] == [False, True, True, False, True, False]


def test_an_ensemble_that_is_best_is_underlined_and_never_bold():
    marks = find_best([1.0, 2.0, 5.0], [False, False, True], higher_is_better=True)
    assert [tuple(m) for m in marks] == [(False, False), (True, False), (False, True)]


def test_nobody_is_best_alone():
    assert [tuple(m) for m in find_best([1.0, None], [False, False], higher_is_better=True)] == [(False, False)] * 2
    marks = find_best([1.0, 2.0], [False, True], higher_is_better=True)
    assert [tuple(m) for m in marks] == [(False, False), (False, True)]
    assert not any(map(any, find_best([1.0, 2.0], [False, False], higher_is_better=None)))


def table(methods, quantities=("accuracy", "AUROC digits-mirrored"), first=10.0):
    """A table in which every cell has a number of its own."""
    values = iter(range(1000))
    lines = {
        method: [Cell((first + next(values) / 100) / 100, 0.0123, 5, True) for _ in quantities] for method in methods
    }
    return Table([Column(title, Quantity("", "accuracy")) for title in quantities], lines)


def printed(shown, width):
    console = Console(file=io.StringIO(), width=width)
    console.print(shown)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return lines


@pytest.mark.parametrize("width", [30, 80, 81, 200])
@pytest.mark.parametrize("count", [1, 3, 9, 20])
def test_no_number_and_no_method_is_cut_at_any_width(count, width):
    methods = [f"method-{index}" for index in range(count)]
    wide = table(methods)
    text = "\n".join(printed(TerminalTable(wide, "Title", "Caption"), width))
    for method, cells in wide.lines.items():
        assert method in text
        for cell in cells:
            assert f"{cell.shown} {cell.spread}" in text
    assert text.count("Title") == text.count("Caption") == 1


def test_a_table_that_fits_is_one_block_and_one_that_does_not_has_as_few_as_possible():
    quantity = ["accuracy"]
    three = table(["dnn", "mixup", "regmixup"], quantity)
    needed = max(len(line) for line in printed(TerminalTable(three, ""), 200))
    blocks = {
        width: sum("accuracy" in line for line in printed(TerminalTable(three, ""), width))
        for width in (needed, needed - 1, 30)
    }
    assert blocks == {needed: 1, needed - 1: 2, 30: 3}


def test_a_number_stands_under_its_method_and_beside_its_quantity():
    lines = printed(TerminalTable(table([f"m{index}" for index in range(9)]), ""), 80)
    heads = [(index, line.split()) for index, line in enumerate(lines) if " m" in line]
    assert [method for _, methods in heads for method in methods] == [f"m{index}" for index in range(9)]
    for index, methods in heads:
        accuracy = lines[index + 2]
        assert accuracy.split()[0] == "accuracy"
        shown = [word for word in accuracy.split()[2:] if word not in ("±", "1.23")]
        assert shown == [f"{10 + 0.02 * int(method[1:]):.2f}" for method in methods]


def test_names_are_not_markup():
    shown = table(["[red]dnn"], ["AUROC folder:[bold]x"])
    text = "\n".join(printed(TerminalTable(shown, "[b]title", "[i]caption"), 80))
    for name in ("[red]dnn", "AUROC folder:[bold]x", "[b]title", "[i]caption"):
        assert name in text


def test_a_missing_cell_is_a_dash():
    gap = Table([Column("accuracy", Quantity("", "accuracy"))], {"dnn": [None]})
    assert printed(TerminalTable(gap, ""), 40)[-2].split() == ["accuracy", "↑", "-"]
