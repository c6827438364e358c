"""The writers: what they write reads back as what went in."""

import io
import re

import pytest
from rich.console import Console

from regmixup.paper import PaperValue
from regmixup.report.aggregation import Cell, Design, Quantity
from regmixup.report.significance import best_of
from regmixup.report.tables import Column, Table
from regmixup.report.writers import print_table, to_latex, to_markdown

from .reading import check_latex, read_markdown


def one_line(*cells, heads=None, **fields):
    """A table of one method."""
    columns = [Column(head, Quantity("", "temperature")) for head in heads or ["x"] * len(cells)]
    return Table(columns, {"a": list(cells)}, Design(), **fields)


def number(mean, **fields):
    return Cell(mean / 100, 0.01, 3, **fields)


def test_notes_are_lettered_in_order_and_shared():
    first, second = "First.", "Second."
    table = one_line(number(1, notes=(second,)), number(2, notes=(first, second)), number(3), None)
    assert [cell.notes for cell in read_markdown(to_markdown(table))[-1][1:]] == ["a", "b,a", "", ""]
    assert r"2.00\textsuperscript{b,a} $\pm$ 1.00 (3) & 3.00 $\pm$ 1.00 (3) & -- \\" in to_latex(table)
    for text in (to_markdown(table), to_latex(table)):
        assert text.index("Second.") < text.index("First.")


HOSTILE = r"50% of $x_1$ & {a}#b\c ~^ <i> | *s* [t]"


def test_nothing_in_a_text_is_markup():
    paper = PaperValue(0.5, HOSTILE, "1")
    table = one_line(number(1, paper=paper, notes=(HOSTILE,)), heads=[HOSTILE], caption=HOSTILE, label=HOSTILE)
    table.lines["[1]"] = table.lines["*"] = [number(2)]
    latex = to_latex(table)
    check_latex(latex)
    assert not re.search(r"\\\\\s*[\[*]", latex)
    assert [len(line) for line in read_markdown(to_markdown(table))] == [2] * 5
    assert "<i>" not in re.sub(r"\\<i\\>", "", to_markdown(table))


def test_the_papers_number_is_under_ours():
    table = one_line(number(1, paper=PaperValue(0.02, "2.00", "1")), number(3))
    assert "\n & {\\scriptsize paper 2.00, $-$1.00} &  \\\\\n" in to_latex(table)
    assert read_markdown(to_markdown(table))[-1][1].text == "1.00 ± 1.00 (3)<br>paper 2.00, −1.00"


@pytest.mark.parametrize(("columns", "scaled"), [(6, False), (7, True)])
def test_a_wide_latex_table_is_scaled_down_to_the_page(columns, scaled):
    text = to_latex(one_line(*[number(1)] * (columns - 1)))
    check_latex(text)
    assert (r"\resizebox{\textwidth}{!}{%" in text) == scaled


@pytest.mark.parametrize("higher", [True, False])
def test_the_best_are_tied_and_nobody_is_best_alone(higher):
    values = {method: number if higher else -number for method, number in (("a", 1.0), ("b", 3.0), ("c", 3.0))}
    assert best_of(values, higher_is_better=higher) == {"b", "c"}
    assert best_of({"a": 1.0}, higher_is_better=higher) == set()
    assert best_of(values, higher_is_better=None) == set()


def table(methods, quantities=("accuracy", "AUROC digits-mirrored"), caption="Title"):
    """A table in which every cell has a number of its own."""
    numbers = iter(range(1000))
    lines = {method: [Cell((10 + next(numbers) / 100) / 100, 0.0123, 5) for _ in quantities] for method in methods}
    return Table([Column(title, Quantity("", "accuracy")) for title in quantities], lines, Design(), caption)


def printed(shown, width):
    console = Console(file=io.StringIO(), width=width)
    print_table(shown, console)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return lines


@pytest.mark.parametrize(("count", "width"), [(1, 30), (9, 80), (9, 81), (20, 200)])
def test_no_number_and_no_method_is_cut_at_any_width(count, width):
    methods = [f"method-{index}" for index in range(count)]
    wide = table(methods)
    text = "\n".join(printed(wide, width))
    for method, cells in wide.lines.items():
        assert method in text
        for cell in cells:
            assert f"{cell.shown} {cell.spread}" in text
    assert text.count("Title") == 1
    assert " ".join(text.split()).count("percent, mean ± std over seeds, best in bold") == 1


def test_a_number_stands_under_its_method_and_beside_its_quantity():
    lines = printed(table([f"m{index}" for index in range(9)]), 80)
    heads = [(index, line.split()) for index, line in enumerate(lines) if " m" in line and "mean" not in line]
    assert [method for _, methods in heads for method in methods] == [f"m{index}" for index in range(9)]
    for index, methods in heads:
        accuracy = lines[index + 2]
        assert accuracy.split()[0] == "accuracy"
        shown = [word for word in accuracy.split()[2:] if word not in ("±", "1.23")]
        assert shown == [f"{10 + 0.02 * int(method[1:]):.2f}" for method in methods]


def test_names_are_not_markup_and_a_missing_cell_is_a_dash():
    shown = table(["[red]dnn"], ["AUROC folder:[bold]x"], "[b]title")
    text = "\n".join(printed(shown, 80))
    for name in ("[red]dnn", "AUROC folder:[bold]x", "[b]title"):
        assert name in text
    gap = Table([Column("accuracy", Quantity("", "accuracy"))], {"dnn": [None]}, Design())
    assert ["accuracy", "↑", "-"] in [line.split() for line in printed(gap, 40)]
