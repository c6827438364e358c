"""Rows are a list that prints as a table."""

import sys
from types import SimpleNamespace

from regmixup.evaluation.rows import Rows
from regmixup.types import Row

ROWS = Rows(
    [
        Row(dataset="toy/test", metric="accuracy", value=0.5, low=0.25, high=0.75, n=1200),
        Row(dataset="toy-c", corruption="fog", severity=3, metric="ece", value=0.125, posthoc="temperature"),
        Row(dataset="far", score="energy", metric="auroc", value=0.9),
    ]
)


def test_they_print_as_a_table_with_a_line_for_each():
    assert repr(ROWS).splitlines() == [
        "dataset   shift  posthoc or score  metric    value   interval          n",
        "toy/test         none              accuracy  0.5000  0.2500 to 0.7500  1,200",
        "toy-c     fog 3  temperature       ece       0.1250",
        "far              energy            auroc     0.9000",
    ]


def test_of_many_the_first_are_shown_and_all_are_counted():
    lines = repr(Rows(ROWS * 500)).splitlines()
    assert len(lines) == 62
    assert lines[-1] == "... 1,500 rows in all; .to_pandas() has every one"


def test_pandas_gets_a_column_for_every_field(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    table = ROWS.to_pandas()
    assert [line["value"] for line in table] == [0.5, 0.125, 0.9]
    assert (table[1]["corruption"], table[1]["severity"]) == ("fog", 3)


def test_a_notebook_shows_a_table_of_escaped_cells():
    text = Rows([Row(dataset="<b>", metric="accuracy", value=0.5)])._repr_html_()
    assert "<td>&lt;b&gt;</td>" in text
    assert "<td>0.5000</td>" in text
    assert text.endswith("<p>1 rows in all</p>")
