"""Methods by name: each can be built, names only what exists, and has the values of its paper."""

import dataclasses
import math
import re
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regmixup import methods, posthoc
from regmixup.augmentations import GaussianNoise, PixMix
from regmixup.config import encode
from regmixup.losses import LogitNorm
from regmixup.methods import METHODS
from regmixup.metrics.scores import SCORES
from regmixup.networks.constraints import SpectralNorm, StableRank
from regmixup.networks.contract import RotationHead
from regmixup.networks.cosine_head import CosineHead
from regmixup.networks.gp_head import GPHead
from regmixup.networks.rbf_head import RBFHead
from regmixup.objectives.alternate import Alternate
from regmixup.objectives.augmix import AugMix
from regmixup.objectives.bimodal import Bimodal
from regmixup.objectives.cutmix import CutMix
from regmixup.objectives.duq import DUQ
from regmixup.objectives.erm import ERM
from regmixup.objectives.half_regmixup import HalfRegMixup
from regmixup.objectives.label_smoothing import LabelSmoothing
from regmixup.objectives.mixup import Mixup
from regmixup.objectives.regcutmix import RegCutMix
from regmixup.objectives.regmixup import RegMixup
from regmixup.objectives.rotation import Rotation
from regmixup.objectives.vicinal import Vicinal
from regmixup.recipes import RECIPES
from regmixup.study.plan import load_study
from regmixup.training.config import configure, objective_of

SNGP_BOUND = SpectralNorm(c=6.0, norm="convolution")
FLAT = {"nesterov": False, "sharpness": "sam", "rho": 0.05, "average": "swa", "average_from": 0.6, "average_lr": 0.05}
EXPECTED = {
    "dnn": {"objective": ERM()},
    "label-smoothing": {"objective": LabelSmoothing(smoothing=0.1)},
    "mixup": {"objective": Mixup(alpha=0.3)},
    "cutmix": {"objective": CutMix(alpha=1.0)},
    "regmixup": {"objective": RegMixup(alpha=20.0, eta=1.0)},
    "regcutmix": {"objective": RegCutMix()},
    "mixup+cutmix": {"objective": Alternate(Mixup(alpha=0.3), CutMix())},
    "regmixup+cutmix": {"objective": Alternate(RegMixup(alpha=10.0), CutMix())},
    "regmixup+regcutmix": {"objective": Alternate(RegMixup(alpha=10.0), RegCutMix())},
    "reliable": {
        "objective": Alternate(RegMixup(alpha=10.0), RegCutMix()),
        "average": "swa",
        "average_from": 0.6,
        "average_lr": 0.05,
    },
    "dnn-sn": {"objective": ERM(), "constraint": SpectralNorm(c=0.5, norm="matrix")},
    "dnn-srn": {"objective": ERM(), "constraint": StableRank(ratio=0.3)},
    "sngp": {"objective": ERM(), "constraint": SNGP_BOUND, "head": GPHead(kernel_std=0.15), "lr": 0.01},
    "duq": {"objective": DUQ(penalty=0.1), "head": RBFHead(momentum=0.99)},
    "kfac-llla": {"objective": ERM()},
    "augmix": {"objective": AugMix(severity=3.0, width=3, jsd_weight=12.0)},
    "deep-ensemble": {"objective": ERM(), "members": 5},
    "half-regmixup": {"objective": HalfRegMixup()},
    "bimodal": {"objective": Bimodal()},
    "fmfp": {"objective": ERM(), **FLAT},
    "sure": {
        "objective": RegMixup(alpha=10.0, eta=0.5, scale="sum", passes="separate"),
        "head": CosineHead(scale=8.0),
        **FLAT,
    },
    "reg-gaussian-noise": {"objective": Vicinal(GaussianNoise(0.1))},
    "pixmix": {"objective": Vicinal(PixMix(4, beta=3.0))},
    "cutout": {"objective": ERM(), "cutout": 4},
    "logitnorm": {"objective": ERM(loss=LogitNorm(0.3))},  # 0.04 elsewhere
    "rotation": {"objective": Rotation(ERM(), weight=1.0), "head": RotationHead()},
    "regmixup+sngp": {"objective": RegMixup(), "constraint": SNGP_BOUND, "head": GPHead(kernel_std=0.15), "lr": 0.01},
}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)


def test_every_method_is_expected():
    assert set(EXPECTED) == set(METHODS)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_method_is_the_digits_recipe_with_its_own_parts(name):
    plain = configure("digits", "dnn")
    assert configure("digits", name) == dataclasses.replace(plain, **EXPECTED[name])


def test_logitnorm_has_its_published_temperature_but_on_digits():
    elsewhere = [configure(recipe, "logitnorm").objective.loss for recipe in RECIPES if recipe != "digits"]
    assert elsewhere == [LogitNorm(0.04)] * len(elsewhere)


@each_method
def test_every_method_configures_every_recipe(method):
    for recipe in RECIPES:
        chosen = method.at(recipe)
        config = configure(recipe, method.name)
        assert config.objective == objective_of(chosen.objective), recipe
        for name, value in chosen.train.items():
            assert getattr(config, name) == value, (recipe, name)


@each_method
def test_every_method_names_what_exists(method):
    assert method.score in SCORES
    assert set(method.selected) <= set(RECIPES)
    assert method.description
    assert method.citation
    for recipe in RECIPES:
        spec = method.at(recipe).posthoc
        assert spec is None or posthoc.build(spec.name, **spec.fields)


def test_the_papers_selected_values():
    """Appendix on hyper-parameters: alpha, eta, c, r and sigma_0 for each dataset and network."""
    cifar10, cifar100 = ("cifar10-wrn28-10", "cifar10-resnet50"), ("cifar100-wrn28-10", "cifar100-resnet50")
    for recipe in (*cifar10, *cifar100, "imagenet-resnet50"):
        mixed, plain = configure(recipe, "regmixup").objective, configure(recipe, "mixup").objective
        assert (mixed.alpha, mixed.eta) == (20.0 if recipe in cifar10 else 10.0, 1.0)
        for estimate in ("half-regmixup", "bimodal", "regmixup+sngp"):
            assert configure(recipe, estimate).objective.alpha == mixed.alpha
        assert plain.alpha == (0.1 if recipe == "imagenet-resnet50" else 0.3)
        assert configure(recipe, "dnn-sn").constraint.c == 0.5
        assert configure(recipe, "dnn-srn").constraint.ratio == 0.3
    variances = [METHODS["kfac-llla"].at(recipe).posthoc.fields["prior_variance"] for recipe in (*cifar10, *cifar100)]
    assert variances == [1.0, 0.6, 4.0, 0.1]
    assert METHODS["kfac-llla"].at("digits").posthoc.fields["prior_variance"] is None


def test_reliable_is_the_line_that_its_study_confirms_and_its_objective_serves_own_loops():
    """A run by the name is a run of `reliable-confirm`."""
    runs = {planned.config for planned in load_study("reliable-confirm").runs()}
    for recipe in ("cifar10-resnet18", "cifar100-resnet18"):
        config = configure(recipe, "reliable", epochs=100, precision="bfloat16", seed=10)
        assert config in runs
        assert config.objective == methods.reliable()


def test_cutouts_squares_have_the_sides_of_its_paper():
    sides = {recipe: configure(recipe, "cutout").cutout for recipe in RECIPES}
    assert {sides[recipe] for recipe in RECIPES if recipe.startswith("cifar10-")} == {16}
    assert sides["cifar100-resnet18"] == sides["cifar100-wrn28-10"] == 8


def test_rotation_joins_any_method_with_a_linear_head():
    config = configure("digits", "regmixup", rotation=0.5, head="linear")
    assert config.objective == Rotation(RegMixup(), weight=0.5)
    assert config.head == RotationHead()
    assert configure("digits", "duq", rotation=0) == configure("digits", "duq")
    with pytest.raises(ValueError, match=r"^rotation must be 0 unless the head is linear, got 1 with GPHead"):
        configure("digits", "sngp", rotation=1)


def test_methods_with_a_recipe_of_their_own_bring_it():
    sngp, sngp100 = configure("cifar10-wrn28-10", "sngp"), configure("cifar100-wrn28-10", "sngp")
    assert (sngp.lr, sngp.batch_size, sngp.epochs, sngp.weight_decay) == (0.16, 256, 250, 6e-4)
    assert (sngp.milestones, sngp.lr_decay, sngp.warmup_epochs) == ((75, 150, 200), 0.2, 1.0)
    assert (sngp.network, sngp.decay_on, sngp100.lr) == ("wrn28-10-sngp", "backbone", 0.08)
    assert sngp.head == GPHead(num_features=1024, kernel_std=0.05, ridge=1.0)
    duq, duq100 = configure("cifar10-wrn28-10", "duq"), configure("cifar100-wrn28-10", "duq")
    assert (duq.lr, duq.epochs, duq.milestones, duq.dropout) == (0.05, 200, (60, 120, 160), 0.3)
    assert (duq.nesterov, duq100.head.initial_count) == (False, 1.28)
    assert configure("cifar100-resnet50", "duq").head == duq100.head
    assert (duq.objective, duq.head) == (DUQ(penalty=0.5), RBFHead(length_scale=0.1, momentum=0.999, initial_count=13))
    augmix = configure("cifar10-wrn28-10", "augmix")
    assert (augmix.epochs, augmix.schedule, augmix.mean, augmix.dropout) == (100, "cosine", (0.5,) * 3, 0.0)
    assert configure("imagenet-resnet50", "augmix").objective.severity == 1.0


def test_the_values_for_resnet_18_are_carried_over_from_the_paper_and_the_methods_own_code():
    cifar10, cifar100 = "cifar10-resnet18", "cifar100-resnet18"
    for name in METHODS:
        ours, papers = (configure(recipe, name) for recipe in (cifar10, "cifar10-resnet50"))
        assert (ours.objective, ours.constraint, ours.members) == (papers.objective, papers.constraint, papers.members)
        assert configure(cifar100, name).objective == configure("cifar100-resnet50", name).objective
        assert METHODS[name].at(cifar10).train.keys().isdisjoint({"network", "epochs", "batch_size"})
    assert METHODS["kfac-llla"].at(cifar10).posthoc.fields["prior_variance"] is None
    duq, sngp = configure(cifar10, "duq"), configure(cifar10, "sngp")
    assert (duq.lr, duq.schedule, duq.milestones, duq.lr_decay) == (0.05, "step", (25, 50, 75), 0.2)
    assert (sngp.lr, sngp.weight_decay, sngp.decay_on, sngp.schedule) == (0.08, 6e-4, "backbone", "cosine")
    assert (configure(cifar100, "sngp").lr, configure(cifar100, "duq").head.initial_count) == (0.04, 1.28)


def test_what_the_caller_says_wins_over_the_method():
    config = configure("cifar10-wrn28-10", "sngp", lr=0.5, network="small", head="linear", constraint=None)
    assert (config.lr, config.network) == (0.5, "small")
    assert config.constraint is None
    assert config.head == configure().head


@pytest.mark.parametrize("recipe", RECIPES)
def test_combinations_have_values_of_the_papers_grid_for_them_nearest_to_those_of_their_parts(recipe):
    """Appendix on other vicinal distributions: alpha in {0.1, 0.3, 1, 10}, eta in {0.1, 1, 3}."""
    alone = {name: configure(recipe, name).objective for name in ("mixup", "regmixup", "cutmix", "regcutmix")}
    for name in ("mixup+cutmix", "regmixup+cutmix", "regmixup+regcutmix"):
        assert not METHODS[name].published
        objective = configure(recipe, name).objective
        for part, own in zip((objective.first, objective.second), name.split("+"), strict=True):
            nearest = min((0.1, 0.3, 1, 10), key=lambda alpha: abs(math.log(alpha / alone[own].alpha)))
            assert part == dataclasses.replace(alone[own], alpha=nearest)
            assert getattr(part, "eta", 1) in (0.1, 1, 3)


def test_the_papers_scores():
    """It names Mixup and KFAC-LLLA; by our rule what trains on mixed labels alone goes with Mixup."""
    by_entropy = {name for name, method in METHODS.items() if method.score == "entropy"}
    assert by_entropy == {"mixup", "kfac-llla", "cutmix", "mixup+cutmix"}
    assert {name for name in by_entropy if METHODS[name].published} == {"mixup", "kfac-llla"}
    assert {name for name, method in METHODS.items() if method.score == "max_logit"} == {"duq"}


def test_an_unknown_method_comes_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown method 'regmixpu': did you mean 'regmixup'.*--plugin$"):
        methods.get("regmixpu")


class Counting(nn.Module):
    """A linear network that counts the images it forwards; its logits are those of kernels, as DUQ needs them."""

    def __init__(self):
        super().__init__()
        self.images, self.head = 0, nn.Linear(192, 10)
        self.head.rotation = nn.Linear(192, 4)

    def features(self, x):
        self.images += len(x)
        return x.flatten(1)

    def forward(self, x):
        return F.logsigmoid(self.head(self.features(x)))


SWITCHED = (RegMixup, RegCutMix, HalfRegMixup, Bimodal, partial(Vicinal, GaussianNoise(0.1)))
FORWARDED = [
    *dict.fromkeys(expected["objective"] for expected in EXPECTED.values()),
    *(make(samples=3) for make in (*SWITCHED, Mixup, CutMix)),
    *(make(samples=3, eta=0.0) for make in SWITCHED),
    HalfRegMixup(samples=2, share=0.25),
    AugMix(jsd_weight=0.0),
    Rotation(RegMixup(), weight=0.5),
    Rotation(RegMixup(eta=0.0), weight=0.0),
]


@pytest.mark.parametrize("objective", [o for o in FORWARDED if not isinstance(o, Alternate)], ids=str)
def test_images_that_a_step_forwards_for_a_clean_one(objective):
    model = Counting()
    objective(model, torch.rand(8, 3, 8, 8), torch.arange(8))
    assert methods.images_per_clean_image(encode(objective)) == model.images / 8


def test_a_coin_forwards_the_mean_of_its_sides():
    sides = {"first": {"kind": "RegMixup", "samples": 2}, "second": {"kind": "CutMix"}}
    assert methods.images_per_clean_image({"kind": "Alternate", "probability": 0.25, **sides}) == 0.25 * 3 + 0.75


@pytest.mark.parametrize(
    ("method", "change", "remedy"),
    [
        ("regmixup", {"alpha": 10}, "alpha is a field of the objective, .* give objective=rm.RegMixup(alpha=10)"),
        ("mixup", {"epochs": 2, "samples": 3}, "objective=rm.Mixup(alpha=0.3, samples=3)"),
        ("reg-gaussian-noise", {"eta": 2}, "objective=rm.Vicinal(transform=..., eta=2)"),
    ],
)
def test_a_field_of_the_objective_is_named_with_what_to_write(method, change, remedy):
    with pytest.raises(ValueError, match=re.escape(remedy).replace(r"\.\*", ".*") + "$"):
        configure("digits", method, **change)
    with pytest.raises(ValueError, match="unknown field of TrainConfig 'epoch': did you mean 'epochs'"):
        configure("digits", method, epoch=1)
