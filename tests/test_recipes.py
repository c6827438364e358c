"""Recipes: the learning rate over time, and values that are refused."""

import dataclasses

import pytest
import torch

from regmixup import data, networks, recipes
from regmixup.config import decode, encode
from regmixup.data.catalogue import find
from regmixup.recipes import RECIPES, Recipe
from regmixup.training.config import TrainConfig, configure


def recipe(**fields):
    return Recipe(**{"train_set": "digits/train", "network": "small", "epochs": 10, "lr": 0.4, **fields})


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


class TestLinear:
    def test_it_is_a_triangle_with_its_peak_at_the_end_of_the_warm_up(self):
        schedule = recipe(schedule="linear", warmup_epochs=2, warmup_lr=0.1, min_lr=0.04).lr_at
        assert [schedule(t) for t in (0, 1, 2)] == pytest.approx([0.1, 0.25, 0.4])
        assert [schedule(t) for t in (4, 6, 9, 10)] == pytest.approx([0.31, 0.22, 0.085, 0.04])
        assert schedule(12) == pytest.approx(0.04)  # a cool-down

    def test_without_a_warm_up_it_falls_from_the_start_and_with_nothing_else_it_never_does(self):
        assert [recipe(schedule="linear").lr_at(t) for t in (0, 2.5, 10)] == pytest.approx([0.4, 0.3, 0])
        assert recipe(schedule="linear", warmup_epochs=10).lr_at(9.999) == pytest.approx(0.4, rel=1e-3)


@pytest.mark.filterwarnings("ignore:Cosine annealing")
@pytest.mark.parametrize("changes", [{}, {"epochs": 7}, {"lr": 0.3, "min_lr": 0.02, "warmup_epochs": 10}], ids=str)
def test_at_the_beginning_of_every_epoch_the_rate_is_that_of_timms_scheduler(changes):
    """timm's own keeps it for the whole epoch; ours goes on to the next epoch's value, step by step."""
    from timm.scheduler import CosineLRScheduler

    ours = dataclasses.replace(recipes.get("imagenet-resnet50"), **changes)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=ours.lr)
    theirs = CosineLRScheduler(
        optimizer, t_initial=ours.epochs, lr_min=ours.min_lr, warmup_t=int(ours.warmup_epochs),
        warmup_lr_init=ours.warmup_lr,
    )  # fmt: skip
    expected = [optimizer.param_groups[0]["lr"]]
    for epoch in range(1, ours.total_epochs):
        theirs.step(epoch)
        expected.append(optimizer.param_groups[0]["lr"])
    assert [ours.lr_at(epoch) for epoch in range(ours.total_epochs)] == pytest.approx(expected, rel=1e-12)
    assert len(expected) == ours.epochs + 10
    within = [ours.lr_at(epoch + 0.5) for epoch in range(ours.total_epochs)]
    assert max(abs(a - b) / ours.lr for a, b in zip(within, expected, strict=True)) > 0.01


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs must be an integer >= 1, got 0: 0 keeps the weights that init names"),
        ({"batch_size": 0}, "batch_size must be an integer >= 1, got 0"),
        ({"crop_padding": -1}, "crop_padding must be an integer >= 0, got -1"),
        ({"magnitude": 31}, "magnitude must be a finite number <= 30, got 31"),
        ({"shards": 0}, "shards must be an integer >= 1, got 0"),
        ({"lr": 0}, "lr must be a finite number > 0, got 0"),
        ({"lr_decay": -1}, "lr_decay must be a finite number >= 0, got -1"),
        ({"crop_area": 0}, "crop_area must be a finite number > 0 and <= 1, got 0"),
        ({"cutout": -1}, "cutout must be an integer >= 0, got -1"),
        ({"cutout": 1}, "cutout must be 0 or at least 2, got 1: an odd side counts as 1 less"),
        ({"nesterov": "false"}, "nesterov must be True or False, got 'false'"),
        ({"min_lr": 0.5}, "min_lr must be a finite number >= 0 and <= 0.4, got 0.5"),
        ({"average": "swa", "average_lr": 0.5}, "average_lr must be a finite number > 0 and <= 0.4, got 0.5"),
        ({"warmup_epochs": 11}, r"warmup_epochs must be at most epochs, got 11 and 10: .* \(--warmup-epochs\)$"),
        ({"milestones": 3}, "milestones must be a tuple of numbers, got 3"),
        ({"std": (0.2, "0.2", 0.2)}, "each number of std must be a finite number > 0, got '0.2'"),
        ({"optimizer": "adamw", "betas": (0.9,)}, r"betas must be two numbers, got \(0.9,\)"),
        ({"betas": (0.9, 1.0)}, "each number of betas must be a finite number >= 0 and < 1, got 1.0"),
        ({"momentum": 1.0}, "momentum must be a finite number >= 0 and < 1, got 1.0"),
        ({"milestones": (3, 3)}, r"milestones must increase, got \(3, 3\)"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin': did you mean 'cosine'"),
        ({"mean": (0.5,)}, r"mean and std must have one value per channel, got \(0.5,\)"),
        ({"mean": (0.5,), "std": (0.0,)}, "each number of std must be a finite number > 0, got 0.0"),
        ({"mean": (0.5, float("nan"), 0.5)}, "each number of mean must be a finite number, got nan"),
        ({"milestones": (1.5,)}, "each number of milestones must be an integer >= 1, got 1.5"),
        ({"dropout": 1}, "dropout must be a finite number >= 0 and < 1, got 1"),
    ],
)
def test_values_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        recipe(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rho": 0.1}, "rho must be 0.05 with sharpness none, where it has no effect, got 0.1"),
        ({"average_from": 0.5}, "average_from must be 0.75 with average none, where it has no effect, got 0.5"),
        ({"average_lr": 0.05}, "average_lr must be None with average none, where it has no effect, got 0.05"),
        ({"magnitude": 5}, "magnitude must be 9 with rand_augment 0, where it has no effect, got 5"),
        ({"betas": (0.8, 0.9)}, r"betas must be \(0.9, 0.999\) with optimizer sgd, where it has no effect, got \(0.8"),
        ({"optimizer": "adamw", "momentum": 0.8}, "momentum must be 0.9 with optimizer adamw, where it has no effect"),
        ({"optimizer": "adamw", "nesterov": False}, "nesterov must be True with optimizer adamw"),
        ({"schedule": "step", "milestones": (10,), "min_lr": 0.01}, "min_lr must be 0.0 with schedule step"),
        ({"milestones": (10, 20)}, r"milestones must be \(\) with schedule cosine, where it has no effect, got \(10"),
        ({"schedule": "linear", "lr_decay": 0.2}, "lr_decay must be 0.1 with schedule linear"),
        ({"warmup_lr": 0.01}, "warmup_lr must be 0.0 with warmup_epochs 0, where it has no effect, got 0.01"),
    ],
)
def test_values_without_effect_are_refused_for_a_training_and_read_from_a_stored_one(fields, message):
    with pytest.raises(ValueError, match=message):
        configure("digits", "dnn", **fields)
    stored = dataclasses.replace(configure("digits", "dnn"), **fields)
    assert decode(TrainConfig, encode(stored)) == stored


def test_a_list_without_effect_is_refused_as_a_tuple_is():
    with pytest.raises(ValueError, match=r"milestones must be \(\) with schedule cosine, .* got \[10, 20\]"):
        configure("digits", "dnn", milestones=[10, 20])


def test_another_schedule_need_not_take_out_the_values_of_its_recipe_or_method():
    configure("cifar10-wrn28-10", "dnn", schedule="cosine")
    configure("cifar10-wrn28-10", "duq", schedule="cosine")
    configure("cifar10-resnet18", "dnn", schedule="step", milestones=(50,))


def test_values_of_another_recipe_are_refused_where_they_have_no_effect():
    """Those of CIFAR without --schedule step would train on a cosine."""
    with pytest.raises(ValueError, match=r"milestones must be \(\) with schedule cosine, .* got \(150, 250\)"):
        configure("digits", "dnn", epochs=350, milestones=(150, 250))
    with pytest.raises(ValueError, match=r"min_lr must be 0\.0 with schedule step, where it has no effect, got 1e-05"):
        configure("cifar10-resnet18", "dnn", schedule="step", milestones=(50,), min_lr=1e-5)


def test_a_cool_down_keeps_the_rate_that_the_last_epoch_had():
    rates = recipe(epochs=4, cooldown_epochs=4, schedule="step", milestones=(2, 4, 6), lr_decay=0.1).lr_at
    assert {rates(epoch) for epoch in (2, 3.9, 4, 5.9, 6, 8)} == {rates(2)}


def test_a_recipe_is_found_by_name():
    assert recipes.get("digits") is RECIPES["digits"]
    with pytest.raises(ValueError, match="unknown recipe 'digit': did you mean 'digits'"):
        recipes.get("digit")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_a_dataset_and_a_network_that_exist(name):
    assert find(RECIPES[name].train_set)
    assert networks.check_network(RECIPES[name].network)


@pytest.mark.parametrize("name", ["cifar10-wrn28-10", "cifar10-resnet50", "cifar100-wrn28-10", "cifar100-resnet50"])
def test_the_cifar_recipes_are_those_of_the_paper(name):
    found = recipes.get(name)
    assert f"{found.train_set.partition('/')[0]}-{found.network}" == name
    assert (found.epochs, found.batch_size, found.weight_decay, found.momentum) == (350, 128, 5e-4, 0.9)
    rates = [found.lr_at(epoch) for epoch in (0, 149.9, 150, 249.9, 250, 349)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


@pytest.mark.parametrize(("family", "epochs"), [("cifar10", 100), ("cifar100", 200)])
def test_the_resnet_18_recipes_are_those_of_openood_and_sure(family, epochs):
    found = recipes.get(f"{family}-resnet18")
    assert (found.train_set, found.network, found.epochs, found.batch_size) == (
        f"{family}/train",
        "resnet18",
        epochs,
        128,
    )
    assert (found.momentum, found.nesterov, found.weight_decay, found.decay_on) == (0.9, True, 5e-4, "all")
    assert (found.crop_padding, found.flip, found.precision, found.warmup_epochs) == (4, True, "auto", 0)
    half = (0.1 + 1e-6) / 2
    assert [found.lr_at(t) for t in (0, epochs / 2, epochs)] == pytest.approx([0.1, half, 1e-6])


def test_pixels_are_normalised_by_what_their_papers_divide_by():
    """The paper's repository for CIFAR, OpenOOD for ResNet-18 on CIFAR-10, the train set for digits."""
    for network in ("wrn28-10", "resnet50", "resnet18"):
        cifar100 = recipes.get(f"cifar100-{network}")
        assert (cifar100.mean, cifar100.std) == ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
        assert recipes.get(f"cifar10-{network}").mean == (0.4914, 0.4822, 0.4465)
    assert recipes.get("cifar10-resnet50").std == (0.2023, 0.1994, 0.2010)
    assert recipes.get("cifar10-resnet18").std == (0.2470, 0.2435, 0.2616)
    images = data.load("digits/train").images.double() / 255
    digits = recipes.get("digits")
    assert (*digits.mean, *digits.std) == pytest.approx((images.mean().item(), images.std().item()), abs=5e-3)
