"""The mean corruption error by hand, and what it refuses."""

import pytest

from regmixup.metrics.shift import corruption_errors, mean_corruption_error, relative_rows
from regmixup.types import Row

REFERENCE = {("fog", 1): 0.2, ("fog", 2): 0.6, ("snow", 1): 0.5, ("snow", 2): 0.5}


def test_severities_are_summed_before_the_ratio_is_taken():
    """Fog: (0.1 + 0.1) / 0.8 = 1/4, where the mean of the ratios would be 1/3. Snow: 1.5 / 1. Mean: 7/8."""
    errors = {("fog", 1): 0.1, ("fog", 2): 0.1, ("snow", 1): 0.75, ("snow", 2): 0.75}
    assert corruption_errors(errors, REFERENCE) == pytest.approx({"fog": 0.25, "snow": 1.5})
    assert mean_corruption_error(errors, REFERENCE) == pytest.approx(7 / 8)
    assert mean_corruption_error(REFERENCE, REFERENCE) == 1


def test_conditions_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match=r"same conditions, only one has \[\('snow', 2\)\]"):
        mean_corruption_error({k: v for k, v in REFERENCE.items() if k != ("snow", 2)}, REFERENCE)
    with pytest.raises(ValueError, match="at least one"):
        mean_corruption_error({}, {})
    with pytest.raises(ValueError, match="got none under 'fog'"):
        mean_corruption_error({("fog", 1): 0.1}, {("fog", 1): 0.0})


def accuracies(method, *values, seed=0):
    conditions = [("fog", 1), ("fog", 2), ("snow", 1)]
    return [
        Row(method=method, seed=seed, dataset="toy-c", corruption=c, severity=s, metric="accuracy", value=v, n=10)
        for (c, s), v in zip(conditions, values, strict=True)
    ]


def test_relative_rows_compare_with_the_reference_of_the_same_seed():
    """fog: (0.1 + 0.2) / (0.2 + 0.4), snow: 0.5 / 0.25."""
    rows = [*accuracies("dnn", 0.8, 0.6, 0.75), *accuracies("mixup", 0.9, 0.8, 0.5)]
    found = relative_rows(rows, reference="dnn")
    assert [(row.method, row.corruption, row.metric) for row in found] == [
        ("dnn", "mean", "mce_relative_to_dnn"),
        ("mixup", "mean", "mce_relative_to_dnn"),
    ]
    assert [row.value for row in found] == pytest.approx([1.0, (0.5 + 2.0) / 2])
    assert relative_rows(accuracies("mixup", 0.9, 0.8, 0.5, seed=1) + rows[:3], reference="dnn") == found[:1]


def test_relative_rows_need_a_reference_with_errors():
    rows = [*accuracies("dnn", 1.0, 1.0, 0.75), *accuracies("mixup", 0.9, 0.8, 0.5)]
    assert relative_rows(rows, reference="dnn") == []
