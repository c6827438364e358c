"""The two t-tests against SciPy's, and how often a column marks a difference where there is none."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from regmixup.report.aggregation import Aggregation, Quantity
from regmixup.report.results import ONE_PRIOR_VARIANCE, RunRecord, Setting
from regmixup.report.significance import LEVEL, compare_column, difference, holm, mean_interval
from regmixup.report.tables import ONE_TEMPERATURE, Column, main_columns, tabulate
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


def test_a_column_of_nine_methods_that_do_not_differ_is_seldom_marked():
    """Ten methods with 5 seeds each, all alike. Without a correction about a third of the columns have a mark."""
    generator = np.random.default_rng(0)
    column = Column("accuracy", Quantity("", ""))
    marked = 0
    for _ in range(400):
        values = generator.normal(0.9, 0.01, size=(10, 5))
        table = tabulate(Aggregation(drawn(dict(zip(["dnn", *"abcdefghi"], values, strict=True)))), [column])
        marked += any(cell.p is not None and cell.p < LEVEL for (cell,) in table.lines.values())
    assert marked / 400 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def setting(rows, calibration="holdout", members=None):
    """A setting of rows. members: for a method that is an ensemble, the run folders of every seed's members."""
    runs = []
    for method, seed in dict.fromkeys((row.method, row.seed) for row in rows):
        run = RunRecord(Path(f"{method}-s{seed}"), method, method, "", seed, "", calibration=calibration)
        own = (members or {}).get(method)
        run.__dict__["provenance"] = {"members": own[seed]} if own else {}
        runs.append(run)
    return Setting("digits", "digits", runs, rows)


def after_temperature(generator, temperatures, seeds=5):
    """ECE after T of two methods that do not differ: T is off by chance, once for every temperature of a method."""
    error = 0.75 * generator.normal(size=(2, temperatures)).repeat(seeds // temperatures, axis=1)
    values = dict(zip(("dnn", "regmixup"), 5 + error + 0.5 * generator.normal(size=(2, seeds)), strict=True))
    fitted = dict(zip(("dnn", "regmixup"), 1 + error, strict=True))
    return [
        *drawn({m: v / 100 for m, v in values.items()}, metric="ece", posthoc="temperature"),
        *drawn(fitted, metric="temperature", posthoc="temperature"),
    ]


def tables_after_temperature(calibration, temperatures):
    generator = np.random.default_rng(0)
    for _ in range(400):
        own = setting(after_temperature(generator, temperatures), calibration)
        yield tabulate(own.aggregation, main_columns(own.aggregation))


def test_one_temperature_for_all_seeds_is_not_tested():
    """Seeds that share a T are not independent: as if they were, nearly half of all nulls come out significant."""
    for table in tables_after_temperature("companion", temperatures=1):
        for line in table.lines.values():
            for cell in filter(None, line):
                assert cell.p is None
                assert not cell.best
                assert cell.notes == (ONE_TEMPERATURE,)
        assert ONE_TEMPERATURE in table.notes()


def test_a_temperature_for_each_seed_is_tested_and_seldom_marked():
    cells = [table.lines["regmixup"] for table in tables_after_temperature("holdout", temperatures=5)]
    scaled = [next(filter(None, line)) for line in cells]
    assert all(cell.p is not None for cell in scaled)
    assert np.mean([cell.p < LEVEL for cell in scaled]) == pytest.approx(0.05, abs=3 * math.sqrt(0.05 * 0.95 / 400))


def test_what_does_not_depend_on_temperature_is_tested_beside_it():
    rows = drawn({"dnn": [0.5, 0.6], "regmixup": [0.7, 0.9]}, metric="ece", posthoc="none")
    own = setting([*rows, *after_temperature(np.random.default_rng(0), 1, seeds=2)], "companion")
    table = tabulate(own.aggregation, main_columns(own.aggregation))
    found = dict(zip((c.title for c in table.columns), table.lines["regmixup"], strict=True))
    assert found["ECE"].p is not None
    assert found["ECE + T"].p is None


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
    for run in own.of("kfac-llla"):
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
