"""Aggregation over seeds and the search for the best cell."""

import math

import pytest

from regmixup.report.tables import Column, aggregate, main_columns, paper_score, tabulate
from regmixup.types import Row


def rows(metric="accuracy", **values):
    return [Row(method=m, seed=i, metric=metric, value=v) for m, vs in values.items() for i, v in enumerate(vs)]


ACCURACY = Column("accuracy", lambda r: r.metric == "accuracy")


def test_mean_and_sample_standard_deviation():
    cell = aggregate([0.1, 0.2, 0.6], percent=True)
    assert cell.mean == pytest.approx(0.3)
    assert cell.std == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 2))
    assert (cell.shown, cell.spread, cell.n) == ("30.00", "± 26.46", 3)


def test_one_seed_has_no_spread():
    assert aggregate([0.5], percent=True).spread == ""


def test_the_best_cell_depends_on_the_direction():
    data = rows(a=[0.9, 0.8], b=[0.7, 0.6])
    lower = Column("accuracy", ACCURACY.select, higher_is_better=False)
    assert [line[0].best for line in tabulate(data, [ACCURACY]).lines.values()] == [True, False]
    assert [line[0].best for line in tabulate(data, [lower]).lines.values()] == [False, True]


def test_cells_that_print_alike_are_tied():
    table = tabulate(rows(a=[0.90001], b=[0.90004], c=[0.5]), [ACCURACY])
    assert [line[0].best for line in table.lines.values()] == [True, True, False]


def test_nothing_is_best_without_a_rival_or_a_direction():
    neutral = Column("T", ACCURACY.select, higher_is_better=None)
    assert not tabulate(rows(a=[0.9]), [ACCURACY]).lines["a"][0].best
    assert not any(line[0].best for line in tabulate(rows(a=[0.9], b=[0.8]), [neutral]).lines.values())


def test_a_missing_value_is_an_empty_cell_and_does_not_compete():
    table = tabulate([*rows(a=[0.9], b=[0.8]), Row(method="c", metric="ece", value=0.99)], [ACCURACY])
    assert table.lines["c"] == [None]
    assert table.lines["a"][0].best


def test_auroc_uses_the_papers_score_of_each_method():
    data = [
        Row(method=method, dataset="far", score=score, metric="auroc", value=value)
        for method in ("mixup", "regmixup")
        for score, value in (("entropy", 0.7), ("dempster_shafer", 0.9))
    ]
    titles = [c.title for c in main_columns(data)]
    table = tabulate(data, main_columns(data))
    index = titles.index("AUROC far")
    assert table.lines["mixup"][index].mean == 0.7
    assert table.lines["regmixup"][index].mean == 0.9
    assert paper_score("something-new") == "dempster_shafer"


def test_an_ood_set_that_was_rebuilt_has_its_column():
    data = [
        Row(method=m, dataset="svhn/test (rebuilt)", score="dempster_shafer", metric="auroc", value=v)
        for m, v in (("dnn", 0.7), ("regmixup", 0.8))
    ]
    titles = [column.title for column in main_columns(data)]
    cells = [
        line[titles.index("AUROC svhn/test (rebuilt)")] for line in tabulate(data, main_columns(data)).lines.values()
    ]
    assert [cell.mean for cell in cells] == [0.7, 0.8]
