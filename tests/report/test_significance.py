"""The two t-tests against SciPy's, and how often a column marks a difference where there is none."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from regmixup.report.aggregation import Quantity
from regmixup.report.results import ONE_PRIOR_VARIANCE, RunRecord, Setting
from regmixup.report.significance import compare_column, difference, holm, mean_interval
from regmixup.report.tables import ONE_TEMPERATURE, Column, tabulate
from regmixup.types import Row


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 12), (5, 5)])
def test_two_methods_are_compared_by_welchs_test(n, m):
    generator = np.random.default_rng(n * m)
    a, b = generator.normal(0.5, 1, n), generator.normal(0, 3, m)
    known = stats.ttest_ind(a, b, equal_var=False)
    apart = difference(a, b)
    assert apart.p == pytest.approx(known.pvalue, rel=1e-9)
    assert apart.mean == pytest.approx(a.mean() - b.mean(), abs=1e-12)
    assert apart.interval(0.9) == pytest.approx(tuple(known.confidence_interval(0.9)), rel=1e-9)
    assert mean_interval(a) == pytest.approx(tuple(stats.ttest_1samp(a, 0).confidence_interval(0.95)), rel=1e-9)


def test_values_that_do_not_spread():
    assert mean_interval([0.5]) is None
    assert mean_interval([0.5, 0.5]) == (0.5, 0.5)
    assert difference([0.75] * 3, [0.5] * 3).interval() == (0.25, 0.25)
    assert difference([0.5] * 3, [0.5] * 3).p == 1.0
    assert difference([0.75] * 3, [0.5] * 3).p == 0.0
    assert not math.isnan(difference([0.75, 0.5, 0.75], [0.5] * 3).p)


def test_holms_correction():
    """As R's p.adjust(c(.01, .04, .03, .005, .9), "holm")."""
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "e": 0.9})
    assert [found[name] for name in "abcde"] == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.9])
    assert holm({}) == {}


def test_only_what_is_compared_counts_among_the_comparisons():
    generator = np.random.default_rng(1)
    values = {name: dict(enumerate(generator.normal(size=5))) for name in ("dnn", "a", "b", "c")}
    alone = difference([*values["a"].values()], [*values["dnn"].values()]).p
    assert compare_column(values, untested=["b", "c"]) == {"a": alone}
    assert compare_column(values | {"c": {0: 1.0}}, untested=["b"]).keys() == {"a"}
    assert compare_column({name: values[name] for name in "abc"}) == {}


def drawn(values, **fields):
    """Rows of each method, a seed for every value."""
    return [Row(method=m, seed=i, value=float(v), **fields) for m, vs in values.items() for i, v in enumerate(vs)]


def setting(rows, calibration="holdout", members=None):
    """A setting of rows. members: for a method that is an ensemble, the run folders of every seed's members."""
    runs = []
    for method, seed in dict.fromkeys((row.method, row.seed) for row in rows):
        run = RunRecord(Path(f"{method}-s{seed}"), method, method, "", seed, "", calibration=calibration)
        own = (members or {}).get(method)
        run.__dict__["provenance"] = {"members": own[seed]} if own else {}
        runs.append(run)
    return Setting("digits", "digits", runs, rows)


@pytest.mark.parametrize("calibration", ["companion", "companion-per-seed", "holdout"])
def test_one_temperature_for_all_seeds_is_not_tested(calibration):
    """Seeds that share a T are not independent; what does not depend on it is tested beside it."""
    values = {"dnn": [0.05, 0.06], "regmixup": [0.01, 0.02]}
    rows = [row for posthoc in ("none", "temperature") for row in drawn(values, metric="ece", posthoc=posthoc)]
    chosen = setting(rows, calibration).aggregation
    columns = [Column("ECE", Quantity("", "ece")), Column("ECE + T", Quantity("", "ece", "temperature"))]
    table = tabulate(chosen, columns)
    plain, scaled = table.lines["regmixup"]
    assert plain.p is not None
    assert plain.best
    untested = calibration == "companion"
    assert (scaled.p is None, scaled.best) == (untested, not untested)
    assert scaled.notes == ((ONE_TEMPERATURE,) if untested else ())
    assert table.lines["dnn"][1].notes == scaled.notes


@pytest.mark.parametrize(
    ("posthoc", "calibration", "untested"),
    [
        ({"prior_variance": None}, "companion", True),
        ({"prior_variance": 0.6}, "companion", False),
        ({"prior_variance": None}, "companion-per-seed", False),
    ],
)
def test_a_prior_variance_of_one_companion_is_not_tested_in_any_column(posthoc, calibration, untested):
    rows = [
        *drawn({"dnn": [0.5, 0.6], "kfac-llla": [0.7, 0.9], "mixup": [0.7, 0.8]}, metric="accuracy"),
        *drawn({"kfac-llla": [0.6, 0.6]}, metric="prior_variance"),
        *drawn({"kfac-llla": [1.2, 1.2], "mixup": [1.1, 1.1]}, metric="temperature", posthoc="temperature"),
    ]
    own = setting(rows, calibration)
    for run in own.runs_of("kfac-llla"):
        run.__dict__["posthoc"] = posthoc
    table = tabulate(own.aggregation, [Column("accuracy", Quantity("", "accuracy"))])
    assert {method: line[0].p is None for method, line in table.lines.items()} == {
        "dnn": True, "kfac-llla": untested, "mixup": False,
    }  # fmt: skip
    assert (ONE_PRIOR_VARIANCE in table.lines["kfac-llla"][0].notes) == untested


@pytest.mark.parametrize("shared", [True, False])
def test_an_ensemble_is_not_compared_with_its_own_members(shared):
    rows = drawn({"dnn": [0.5, 0.6], "deep-ensemble": [0.7, 0.9], "mixup": [0.7, 0.8]}, metric="accuracy")
    first = "dnn-s" if shared else "other-s"
    own = setting(rows, members={"deep-ensemble": [[f"{first}{i}" for i in range(5)], ["dnn-s8", "dnn-s9"]]})
    table = tabulate(own.aggregation, [Column("accuracy", Quantity("", "accuracy"))])
    cell = table.lines["deep-ensemble"][0]
    assert (cell.p is None) == shared
    assert ("Not compared with dnn: runs of dnn are members of this ensemble." in cell.notes) == shared
    assert cell.best_overall


def test_a_method_of_several_networks_is_an_ensemble_whatever_its_label():
    """As of a grid over members: it must not be the best single model."""
    rows = drawn({"dnn": [0.5, 0.6], "dnn(members=2)": [0.8, 0.9], "mixup": [0.7, 0.8]}, metric="accuracy")
    own = setting(rows, members={"dnn(members=2)": [["a-s0", "a-s1"], ["a-s2", "a-s3"]]})
    table = tabulate(own.aggregation, [Column("accuracy", Quantity("", "accuracy"))])
    cells = {label: line[0] for label, line in table.lines.items()}
    assert [label for label, cell in cells.items() if cell.best] == ["mixup"]
    assert [label for label, cell in cells.items() if cell.best_overall] == ["dnn(members=2)"]
    assert [list(block) for block in table.blocks()] == [["dnn", "mixup"], ["dnn(members=2)"]]
