"""Grids: what varies, what is fixed, what the points are called."""

import pytest

import regmixup as rm
from regmixup.posthoc import LastLayerLaplace, MeanField, MonteCarlo
from regmixup.study.grid import adjust, grid_points
from regmixup.training.config import configure


def test_every_combination_is_a_point_and_the_last_list_is_fastest():
    points = list(grid_points({"objective": {"alpha": [10, 20.0], "eta": [0.1, 1]}, "epochs": 3}))
    assert [str(point) for point in points] == [
        "(alpha=10, eta=0.1)", "(alpha=10, eta=1)", "(alpha=20, eta=0.1)", "(alpha=20, eta=1)",
    ]  # fmt: skip
    assert points[1].varied == {"alpha": 10, "eta": 1}
    assert points[1].fields == {"epochs": 3, "objective.alpha": 10, "objective.eta": 1}


def test_fields_of_one_name_are_told_apart_and_fields_of_one_key_change_together():
    first_and_second = {"first": {"alpha": [1]}, "second": {"alpha": [2]}}
    (point,) = grid_points({"objective": first_and_second, "objective.first.eta, objective.second.eta": [3]})
    assert str(point) == "(first.alpha=1, second.alpha=2, eta=3)"
    config, _ = adjust(configure("digits", "regmixup+regcutmix"), None, point.fields)
    assert (config.objective.first.alpha, config.objective.second.alpha) == (1, 2)
    assert (config.objective.first.eta, config.objective.second.eta) == (3, 3)


def test_a_value_that_is_a_list_stands_in_a_list():
    assert [point.fields["milestones"] for point in grid_points({"milestones": [[60, 120], [100]]})] == [
        (60, 120),
        (100,),
    ]


def test_corners_are_the_ends_of_two_lists_and_the_first_of_the_others():
    points = grid_points({"lr": [1, 2, 3], "weight_decay": [4, 5, 6], "momentum": [7, 8]})
    corners = [tuple(point.varied.values()) for point in points if point.corner]
    assert corners == [(1, 4, 7), (1, 6, 7), (3, 4, 7), (3, 6, 7)]


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


@pytest.mark.parametrize(
    ("table", "trains"),
    [({"posthoc": {"factor": [1]}, "lr": 3}, False), ({"lr": [1]}, True), ({"posthoc.factor, lr": [2]}, True)],
)
def test_a_point_knows_whether_training_depends_on_what_varies(table, trains):
    (point,) = grid_points(table)
    assert point.trains == trains


def test_an_empty_list_is_refused():
    with pytest.raises(ValueError, match=r"grid over objective.alpha must be one or more, .* got \[\]"):
        list(grid_points({"objective": {"alpha": []}}))


def test_a_loss_and_a_transform_are_set_by_name():
    config, _ = adjust(
        rm.configure("digits", "pixmix"), None, {"objective.loss": "logitnorm", "objective.transform": "cutout"}
    )
    assert config.objective == rm.Vicinal(rm.Cutout(), loss=rm.losses.LogitNorm())
    config, _ = adjust(rm.configure("digits", "regmixup", rotation=1), None, {"objective.objective.alpha": 5})
    assert config.objective == rm.Rotation(rm.RegMixup(5))
    with pytest.raises(ValueError, match="unknown loss 'logitnrom': did you mean 'logitnorm'"):
        adjust(config, None, {"objective.loss": "logitnrom"})
    with pytest.raises(ValueError, match=r"loss must be None or a callable .*, got 3"):
        adjust(rm.configure("digits", "regmixup"), None, {"objective.loss": 3})
