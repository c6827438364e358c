"""Recipes: the learning rate over time, and values that are refused."""

import dataclasses
import math
from itertools import pairwise

import pytest

from regmixup import data, networks, recipes
from regmixup.recipes import RECIPES, Recipe


def recipe(**fields):
    return Recipe(**{"train_set": "digits/train", "network": "small", "epochs": 10, "lr": 0.4, **fields})


class TestCosine:
    def test_start_middle_and_end(self):
        schedule = recipe(schedule="cosine").lr_at
        assert schedule(0) == 0.4
        assert schedule(5) == pytest.approx(0.2)
        assert schedule(10) == pytest.approx(0.0, abs=1e-15)

    def test_it_follows_the_formula_and_only_falls(self):
        values = [recipe().lr_at(j / 7) for j in range(71)]
        assert values == pytest.approx([0.2 * (1 + math.cos(math.pi * j / 70)) for j in range(71)])
        assert all(late < early for early, late in pairwise(values))

    def test_it_stays_at_zero_after_the_end(self):
        assert recipe().lr_at(25) == pytest.approx(0.0, abs=1e-15)


class TestStep:
    def test_the_rate_falls_at_each_milestone(self):
        schedule = recipe(schedule="step", milestones=(3, 6), lr_decay=0.1).lr_at
        assert [schedule(t) for t in (0, 2.999)] == [0.4, 0.4]
        assert [schedule(t) for t in (3, 5.999)] == pytest.approx([0.04, 0.04])
        assert [schedule(t) for t in (6, 10)] == pytest.approx([0.004, 0.004])

    def test_milestones_are_needed(self):
        with pytest.raises(ValueError, match="milestones must name at least one epoch"):
            recipe(schedule="step")

    def test_a_shortened_recipe_keeps_its_milestones_and_never_reaches_them(self):
        short = dataclasses.replace(recipes.get("cifar10-wrn28-10"), epochs=5)
        assert {short.lr_at(t / 4) for t in range(21)} == {0.1}


class TestWarmUp:
    def test_the_rate_grows_linearly_from_zero(self):
        schedule = recipe(schedule="step", milestones=(8,), warmup_epochs=2).lr_at
        assert [schedule(t) for t in (0, 0.5, 1, 2, 3)] == pytest.approx([0, 0.1, 0.2, 0.4, 0.4])

    def test_it_may_last_to_the_end(self):
        assert recipe(schedule="step", milestones=(20,), warmup_epochs=10).lr_at(10) == 0.4

    def test_it_multiplies_the_cosine(self):
        warm, cold = recipe(warmup_epochs=4).lr_at, recipe().lr_at
        assert [warm(t) for t in (1, 3, 4, 7)] == pytest.approx([cold(1) / 4, cold(3) * 3 / 4, cold(4), cold(7)])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer >= 1, got 0"),
        ({"epochs": 2.5}, "epochs must be an integer >= 1, got 2.5"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
        ({"crop_padding": -1}, "crop_padding must be an integer >= 0, got -1"),
        ({"lr": 0}, "lr must be a finite number > 0, got 0"),
        ({"lr": math.nan}, "lr must be a finite number > 0, got nan"),
        ({"lr_decay": -1}, "lr_decay must be a finite number >= 0, got -1"),
        ({"warmup_epochs": -1}, "warmup_epochs must be a finite number >= 0, got -1"),
        ({"warmup_epochs": 11}, "warmup_epochs must be at most epochs, got 11 and 10"),
        ({"momentum": -0.1}, "momentum must be a finite number >= 0 and < 1, got -0.1"),
        ({"momentum": 1.0}, "momentum must be a finite number >= 0 and < 1, got 1.0"),
        ({"milestones": (0, 3)}, "each of milestones must be an integer >= 1, got 0"),
        ({"milestones": (2.5,)}, "each of milestones must be an integer >= 1, got 2.5"),
        ({"milestones": (6, 3)}, r"milestones must increase, got \(6, 3\)"),
        ({"milestones": (3, 3)}, r"milestones must increase, got \(3, 3\)"),
        ({"weight_decay": math.inf}, "weight_decay must be a finite number >= 0, got inf"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin': did you mean 'cosine'"),
        ({"precision": "float64"}, "unknown precision 'float64': .*Available: auto, bfloat16, float32"),
        ({"mean": (0.5,)}, r"mean and std must have one value per channel, std > 0, got \(0.5,\)"),
        ({"mean": (0.5,), "std": (0.0,)}, r"std > 0, got \(0.5,\) and \(0.0,\)"),
    ],
)
def test_values_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        recipe(**fields)


def test_a_recipe_is_found_by_name():
    assert recipes.get("digits") is RECIPES["digits"].recipe
    with pytest.raises(ValueError, match="unknown recipe 'digit': did you mean 'digits'"):
        recipes.get("digit")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_a_dataset_and_a_network_that_exist_and_is_described(name):
    found = RECIPES[name]
    assert data.check_dataset(found.recipe.train_set)
    assert networks.check_network(found.recipe.network)
    assert found.description


def test_the_digits_recipe_normalises_by_the_train_set():
    images = data.load("digits/train").images.double() / 255
    found = recipes.get("digits")
    assert found.mean == pytest.approx((images.mean().item(),), abs=5e-3)
    assert found.std == pytest.approx((images.std().item(),), abs=5e-3)
