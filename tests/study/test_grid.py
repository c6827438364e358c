"""Grids: what varies, what is fixed, what the points are called."""

import pytest

from regmixup.posthoc import LastLayerLaplace, MeanField, MonteCarlo
from regmixup.study.grid import ValueGrid, adjust
from regmixup.training.config import configure


def test_every_combination_is_a_point_and_the_last_axis_is_fastest():
    grid = ValueGrid.of({"objective": {"alpha": [10, 20.0], "eta": [0.1, 1]}, "epochs": 3})
    assert [str(point) for point in grid.points()] == [
        "(alpha=10, eta=0.1)", "(alpha=10, eta=1)", "(alpha=20, eta=0.1)", "(alpha=20, eta=1)",
    ]  # fmt: skip
    assert [grid.changes(point) for point in grid.points()][1] == {
        "epochs": 3,
        "objective.alpha": 10,
        "objective.eta": 1,
    }


def test_without_a_grid_there_is_one_point_that_changes_nothing():
    (point,) = ValueGrid.of({}).points()
    assert (str(point), ValueGrid.of({}).changes(point)) == ("", {})


def test_fields_of_one_name_are_told_apart_and_fields_of_one_axis_change_together():
    grid = ValueGrid.of(
        {
            "objective": {"first": {"alpha": [1]}, "second": {"alpha": [2]}},
            "objective.first.eta, objective.second.eta": [3],
        }
    )
    (point,) = grid.points()
    assert str(point) == "(first.alpha=1, second.alpha=2, eta=3)"
    config, _ = adjust(configure("digits", "regmixup+regcutmix"), None, grid.changes(point))
    assert (config.objective.first.alpha, config.objective.second.alpha) == (1, 2)
    assert (config.objective.first.eta, config.objective.second.eta) == (3, 3)


def test_a_value_that_is_a_list_stands_in_a_list():
    (axis,) = ValueGrid.of({"milestones": [[60, 120], [100]]}).axes
    assert axis.values == ((60, 120), (100,))


def test_corners_are_the_ends_of_two_axes_and_the_first_of_the_others():
    grid = ValueGrid.of({"lr": [1, 2, 3], "weight_decay": [4, 5, 6], "momentum": [7, 8]})
    corners = [tuple(point.named().values()) for point in grid.points() if point.is_corner()]
    assert corners == [(1, 4, 7), (1, 6, 7), (3, 4, 7), (3, 6, 7)]
    assert all(point.is_corner() for table in ({"lr": [1]}, {}) for point in ValueGrid.of(table).points())


def test_any_part_of_a_run_can_be_set():
    config, posthoc = adjust(
        configure("digits", "sngp"),
        MonteCarlo(samples=10),
        {"head.ridge": 2.0, "constraint.c": 3.0, "posthoc.factor": 20.0, "posthoc.name": "mean_field"},
    )
    assert (config.head.ridge, config.constraint.c) == (2.0, 3.0)
    assert posthoc == MeanField(factor=20.0)  # the name first, wherever it stands
    _, posthoc = adjust(config, LastLayerLaplace(n_eff=128), {"posthoc.predictive": "mean_field"})
    assert posthoc == LastLayerLaplace(n_eff=128, predictive="mean_field")


def test_an_axis_knows_whether_training_depends_on_it():
    axes = ValueGrid.of({"posthoc": {"factor": [1]}, "objective": {"alpha": [1]}, "posthoc.factor, lr": [2]}).axes
    assert [axis.of_posthoc for axis in axes] == [True, False, False]


def test_an_empty_axis_is_refused():
    with pytest.raises(ValueError, match=r"grid over alpha must be one or more, without repetition, got \[\]"):
        ValueGrid.of({"objective": {"alpha": []}})
