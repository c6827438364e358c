"""The paper's slips: those that its numbers show are recorded, and no others."""

import runpy
from itertools import combinations

import pytest
from make_paper_tables import best
from slips import SLIPS

from regmixup.paper import TABLES
from regmixup.report.significance import Marks
from tests.paper.test_paper import CELLS, PLACES

from .archived import ROOT


def test_marks_that_the_numbers_ask_for_differ_from_the_papers_only_where_a_slip_says_so():
    recorded = {
        at: mark for slip in SLIPS if slip.kind == "mark" for at, mark in zip(slip.cells, slip.correct, strict=True)
    }
    found = {}
    for table in TABLES.values():
        for at, mark in best(table).items():
            if mark != Marks(CELLS[at][-1].bold, CELLS[at][-1].underline):
                found[at] = mark
    assert found == recorded
    assert len(found) == 14
    for table in TABLES.values():
        if not table.marked:
            assert not any(cell.bold or cell.underline for *_, cell in table.cells())


def number_slips():
    return [frozenset(slip.cells) for slip in SLIPS if slip.kind == "number"]


def twins(part):
    """Pairs of quantities with the same number whose places differ in this part alone, as sets of cells."""
    names = ("method", "network", "train_set", "dataset", "metric", "posthoc")
    found = []
    for (one, cells), (other, other_cells) in combinations(PLACES.items(), 2):
        differing = [name for name, a, b in zip(names, one, other, strict=True) if a != b]
        if differing == [part] and cells[0][1] == other_cells[0][1]:
            found.append(frozenset((main_cell(cells), main_cell(other_cells))))
    return found


def main_cell(cells):
    """The cell that a slip names: Tables 1 and 18 repeat numbers of others."""
    return next(at for at, _ in cells if at.table not in ("1", "18"))


@pytest.mark.parametrize(("part", "count"), [("posthoc", 3), ("metric", 3), ("network", 5)])
def test_numbers_that_stand_for_two_things_are_recorded(part, count):
    """With and without T; ECE and AdaECE; two networks: nothing that is printed twice goes without a slip."""
    found = twins(part)
    assert len(found) == count
    assert set(found) <= set(number_slips())


def test_temperature_scaling_that_does_not_help_on_the_test_set_is_recorded():
    """T is chosen by ECE on held-out data of the same distribution, so that it should not harm there."""
    found = []
    for place, cells in PLACES.items():
        if place[3] in ("cifar10/test", "cifar100/test", "imagenet/val-test") and place[4:] == ("adaptive_ece", "none"):
            scaled = PLACES[*place[:5], "temperature"]
            if float(scaled[0][1]) >= float(cells[0][1]):
                found.append(frozenset((scaled[0][0], cells[0][0])))
    assert len(found) == 2
    assert set(found) <= set(number_slips())


def test_slips_name_cells_that_exist_and_numbers_that_stand_there():
    for slip in SLIPS:
        assert slip.sentence.endswith(".")
        assert (slip.kind == "text") == bool(slip.place) == (not slip.cells)
        if slip.kind == "number" and "comma" not in slip.sentence:
            assert any(CELLS[at][-1].text in slip.sentence for at in slip.cells)
            assert len(slip.cells) == 2
        assert all(at in CELLS for at in slip.cells)
    misprints = [at for at, (*_, cell) in CELLS.items() if "," in cell.text]
    assert [frozenset(misprints)] == [frozenset(s.cells) for s in SLIPS if "comma" in s.sentence]


def test_the_page_of_the_tables_is_what_its_script_writes():
    script = runpy.run_path(str(ROOT / "docs" / "make_paper_tables.py"))
    text = script["PAGE"].read_text(encoding="utf-8")
    assert text == script["page"]()
    assert all(slip.sentence in text for slip in SLIPS if slip.kind == "text")
