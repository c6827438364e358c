"""The table in the terminal: every number whole, whatever the width."""

import io

import pytest
from rich.console import Console

from regmixup.report.tables import Cell, Column, Table
from regmixup.report.terminal import TerminalTable


def table(methods, quantities=("accuracy", "AUROC digits-mirrored"), first=10.0):
    """A table in which every cell has a number of its own."""
    values = iter(range(1000))
    lines = {
        method: [Cell((first + next(values) / 100) / 100, 0.0123, 5, True) for _ in quantities] for method in methods
    }
    return Table([Column(title, lambda row: True) for title in quantities], lines)


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
    gap = Table([Column("accuracy", lambda row: True)], {"dnn": [None]})
    assert printed(TerminalTable(gap, ""), 40)[-2].split() == ["accuracy", "↑", "-"]
