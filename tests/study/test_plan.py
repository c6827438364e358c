"""Study files: read, checked, expanded."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import regmixup as rm
from regmixup import study as public
from regmixup.methods import METHODS, Spec
from regmixup.networks.gp_head import GPHead
from regmixup.study.plan import load_study
from regmixup.study.planned_run import Evaluation
from tests.study.mini import MINI, load_mini, plan_mini


def test_a_study_file_becomes_runs_seed_by_seed(tmp_path):
    runs = plan_mini(tmp_path)
    assert [(planned.method, planned.config.seed) for planned in runs] == [
        ("dnn", 0), ("regmixup", 0), ("dnn", 1), ("regmixup", 1),
    ]  # fmt: skip
    assert all(planned.config.epochs == 5 and planned.config.batch_size == 64 for planned in runs)


def test_the_public_names_of_the_package_are_those_of_its_modules():
    assert {name for name in public.__all__ if getattr(public, name) is None} == set()
    assert public.load is load_study
    assert "digits" in public.available()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = public.nothing


def test_a_method_may_have_seeds_of_its_own_and_the_first_seeds_come_first(tmp_path):
    text = MINI.replace("[train]", "[seeds_of]\nregmixup = [0, 2]\n[train]", 1)
    study = load_mini(tmp_path, text)
    assert [(planned.method, planned.config.seed) for planned in study.runs()] == [
        ("dnn", 0), ("regmixup", 0), ("dnn", 1), ("regmixup", 2),
    ]  # fmt: skip


def test_refreshed_batch_norm_is_a_further_line_of_the_same_run(tmp_path):
    text = MINI.replace("seeds", "refresh_batch_norm = true\nseeds")
    text = text.replace("[train]", "[grid.regmixup]\nobjective.alpha = [1, 10]\n[train]")
    runs = plan_mini(tmp_path, text)
    twins = [(plain, twin) for plain, twin in pairwise(runs) if twin.batch_norm == "refreshed"]
    labels = [twin.label for _, twin in twins if twin.config.seed == 0]
    assert labels == ["dnn(bn=refreshed)", "regmixup(alpha=1, bn=refreshed)", "regmixup(alpha=10, bn=refreshed)"]
    for plain, twin in twins:
        assert twin.config == plain.config
        assert twin.stem != plain.stem


def test_statistics_of_augmented_and_of_mixed_images_are_lines_of_their_own(tmp_path):
    asked = "refresh_batch_norm = true\nrefresh_augmented = true\nrefresh_mixed = true\nseeds"
    labels = [one.label for one in plan_mini(tmp_path, MINI.replace("seeds", asked))]
    kinds = ("refreshed", "refreshed-augmented", "refreshed-mixed")
    assert labels[:5] == ["dnn", *(f"dnn(bn={kind})" for kind in kinds), "regmixup"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds", "refresh_batch_norm = true\nselect = true\nseeds", "refresh_batch_norm must be false"),
        ("seeds", "refresh_augmented = true\nseeds", "refresh_batch_norm must be true with refresh_augmented or"),
        ("seeds", "refresh_mixed = true\nseeds", "refresh_batch_norm must be true .* refresh_mixed, got false"),
        ("seeds", 'scale = "smoke"\nseeds', "must leave out what `load_study` sets, got scale$"),
        ("seeds", 'source = "x"\nselected = {}\nseeds', "must leave out what `load_study` sets, got source, selected$"),
        ('"regmixup"]', '"regmixpu"]', "did you mean 'regmixup'"),
        ("seeds = [0, 1]", "sedes = [0, 1]", "did you mean 'seeds'"),
        ("[train]", "[grid]\ndnn = []\n[train]", "grid.dnn must be a table, or several"),
        ("[train]", "[grid.dnn]\nposthoc.factor = [1]\n[train]", "grid names posthoc.factor, but posthoc is None here"),
        ("[train]", '[only]\ndnn = ["digit"]\n[train]', "unknown recipe of only 'digit': did you mean 'digits'"),
        ('"photographs/test"', '"photographs/test", "photographs/test"', "ood must name each dataset once"),
        ("resamples = 100", "resamples = 0", "resamples must be an integer >= 1"),
        ('recipe = "digits"', 'recipe = "digits"\nrecipes = ["digits"]', "recipes .* without repetition"),
        ("[evaluate]", "[evaluate.cifar10]", "unknown recipe or family of a section 'cifar10'"),
        ("[train]", '[only]\ndnn = "digits"\n[train]', "only.dnn must be a list of str, got 'digits'"),
        ("[train]", "[seeds_of]\ndnn = [true]\n[train]", r"seeds_of.dnn must be a list of int, got \[True\]"),
        ("[train]", "[seeds_of]\ndnn = [[1]]\n[train]", r"seeds_of.dnn must be a list of int, got \[\[1\]\]"),
        ("[train]", "[seeds_of]\ndnn = [7, 7]\n[train]", "seeds_of.dnn must be one or more, without repetition"),
        ("[train]", "[train.digits]\nseed = 5\n[train]", "seed cannot stand under"),
        ("[train]", "[grid.dnn]\nobjective.alpha = [1]\n[train]", "unknown field of ERM in grid 'alpha'"),
        ("[train]", "[grid.dnn]\nobjective = 'mixup'\n[train]", "objective cannot stand under"),
        ("[train]", "[[grid.dnn]]\nlr = 0.1\n[[grid.dnn]]\nlr = 0.2\n[train]", r"labels of grid.dnn .*'dnn', 'dnn'"),
        ("epochs = 5", "epochs = 0", r"cannot plan dnn, digits, of study .*mini\.toml: epochs must be an integer >= 1"),
        ('"photographs/test"', '"photograph/test"', "unknown dataset of ood 'photograph/test': did you mean"),
        ('"path:digits/test"', '"digits/test"', "profile must be a `path:` set"),
        ('test = "digits/test"\n', "\n", "evaluate must name a test set, or a validation set and no other"),
        (
            'validation = "digits/val"',
            'validation = "digits/test"',
            "validation must not be a test, shifted or OOD set",
        ),
        ("[evaluate]", '[evaluate]\ncalibration = "companion"', "validation must be part of a split"),
        (
            'test = "digits/test"',
            'test = "digits/train"',
            "test must be images that were not trained on, got 'digits/tr",
        ),
        ('"photographs/test"', '"digits/train"', "ood must be images that were not trained on, got 'digits/train'"),
        (
            '"photographs/test"',
            '"digits/test"',
            "ood must hold other images than the test set digits/test, got 'digits",
        ),
        ('validation = "digits/val"', 'calibration = "companion"', "validation and test must both be named"),
        ("seeds = [0, 1]", "", "study must have the fields .*seeds.*, got no seeds"),
        ('title = "Mini"', "title = 3", r"cannot read study .*mini\.toml: study.title must be str, got 3"),
        ('title = "Mini"', 'title = "x"\nname = "../x"', "name must be letters, .*it names a folder, got '../x'"),
    ],
)
def test_a_wrong_study_file_is_explained(tmp_path, old, new, message):
    assert old in MINI
    with pytest.raises(ValueError, match=message):
        plan_mini(tmp_path, MINI.replace(old, new))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'test = "cifar10/val-10"',
            "test must be images that were not trained on, got 'cifar10/val-10' for a model of",
        ),
        ('shift = ["cifar10-val-c"]', "shift must be images that were not trained on, got 'cifar10-val-c/"),
        ('ood = ["cifar10/openood-test"]', "ood must hold other images than the test set cifar10/test, got 'cifar10/"),
        ('validation = "cifar10/openood-val"', "validation must hold other images than the test set cifar10/test, got"),
    ],
)
def test_images_of_the_train_set_or_of_the_test_set_are_found_under_other_names(tmp_path, line, message):
    """As of `reliable-search` without its train set: candidates would be ranked on what they were trained on."""
    entries = {
        name: f'{name} = "{dataset}"' for name, dataset in (("recipe", "cifar10-resnet18"), ("test", "cifar10/test"))
    }
    entries[line.partition(" ")[0]] = line
    recipe, *sets = entries.values()
    text = "\n".join(['title = "t"', 'methods = ["dnn"]', "seeds = [0]", recipe, "[evaluate]", *sets])
    with pytest.raises(ValueError, match=message):
        plan_mini(tmp_path, text)


@pytest.mark.parametrize("head", [GPHead(num_features=64), Spec("gp", {"num_features": 64}), torch.nn.Linear(2, 2)])
def test_values_that_the_record_of_a_study_cannot_hold_are_refused_before_anything_is_trained(tmp_path, head):
    study = replace(load_mini(tmp_path), train={"head": head})
    message = f"head must be a number, text or list, as a study file holds it, got {type(head).__name__}"
    with pytest.raises(ValueError, match=f"cannot plan dnn, .*: {message}"):
        public.run(study, tmp_path / "runs", device="cpu")
    with pytest.raises(ValueError, match=r"objective\.loss must be a number, text or list, .*, got Focal"):
        list(replace(study, train={}, grid={"dnn": {"objective.loss": [rm.losses.Focal()]}}).runs())


def test_an_unknown_study_is_answered_with_the_list():
    with pytest.raises(ValueError, match=r"did you mean 'digits'\? Available: accuracy, .*digits"):
        load_study("digit")
    with pytest.raises(
        ValueError, match=r"cv-mixup, cv-mixup-imagenet, .*, or a file of your own, such as my\.toml; rep"
    ):
        load_study("my")
    with pytest.raises(ValueError, match=r"no\.toml does not exist"):
        load_study("no.toml")


CIFAR = """
title = "Several"
recipes = ["cifar10-wrn28-10", "cifar100-wrn28-10", "cifar10-resnet50"]
methods = ["dnn", "regmixup"]
seeds = [3, 4]

[only]
regmixup = ["cifar10-wrn28-10", "cifar100-wrn28-10"]

[train]
batch_size = 64

[train.cifar100]
epochs = 7

[train.cifar10-resnet50]
epochs = 9
milestones = [4]

[evaluate]
ood = ["svhn/test"]
calibration = "companion"

[evaluate.cifar10]
validation = "cifar10/val-10"
test = "cifar10/test"
shift = ["cifar10-c"]

[evaluate.cifar100]
validation = "cifar100/val-10"
test = "cifar100/test"
ood = ["cifar10/test"]
"""


def test_sections_hold_for_a_recipe_or_for_a_family_and_the_nearer_one_wins(tmp_path):
    runs = plan_mini(tmp_path, CIFAR)
    assert [(p.recipe, p.method, p.config.epochs, p.config.batch_size) for p in runs if p.config.seed == 3] == [
        ("cifar10-wrn28-10", "dnn", 350, 64),
        ("cifar10-wrn28-10", "regmixup", 350, 64),
        ("cifar100-wrn28-10", "dnn", 7, 64),
        ("cifar100-wrn28-10", "regmixup", 7, 64),
        ("cifar10-resnet50", "dnn", 9, 64),
    ]
    assert [p.config.seed for p in runs] == [3] * 5 + [4] * 5
    assert [p.config.objective.alpha for p in runs if p.method == "regmixup"] == [20, 10, 20, 10]
    assert runs[4].config.milestones == (4,)
    assert [(p.evaluate.test, p.evaluate.ood) for p in runs[:3:2]] == [
        ("cifar10/test", ("svhn/test",)),
        ("cifar100/test", ("cifar10/test",)),
    ]


def test_a_companion_is_trained_on_all_but_the_validation_set_with_the_first_seed(tmp_path):
    for planned in plan_mini(tmp_path, CIFAR):
        family = planned.config.train_set.partition("/")[0]
        assert planned.config.train_set == f"{family}/train"
        expected = replace(planned.config, train_set=f"{family}/train-90", seed=3)
        assert planned.companion == expected


def test_every_seed_can_have_a_companion_of_its_own(tmp_path):
    text = CIFAR.replace('"companion"', '"companion-per-seed"')
    plan = plan_mini(tmp_path, text)
    assert (
        [planned.companion.seed for planned in plan] == [planned.config.seed for planned in plan] == [3] * 5 + [4] * 5
    )
    assert {planned.companion.train_set for planned in plan} == {"cifar10/train-90", "cifar100/train-90"}


def test_cifar_c_stands_for_the_15_corruptions_of_the_benchmark():
    names = Evaluation(test="cifar10/test", shift=("cifar10-c",)).shift_sets()
    assert len(names) == 75
    assert not any("speckle" in name for name in names)
    assert Evaluation(test="cifar10/test", shift=("cifar10-c/saturate/1",)).shift_sets() == ["cifar10-c/saturate/1"]


def test_an_evaluation_is_known_by_its_posthoc_map_and_by_the_companion_of_all_seeds(tmp_path):
    """Rows of other settings of the map, or with T of another companion, are those of another evaluation."""
    text = MINI.replace('"dnn", "regmixup"', '"dnn", "kfac-llla"')

    def stems(text: str) -> dict[str, str]:
        return {planned.name: planned.stem for planned in plan_mini(tmp_path, text)}

    plain, other = stems(text), stems(text + "[grid.kfac-llla]\nposthoc.samples = 20\n")
    assert {name for name in plain if plain[name] != other[name]} == {"kfac-llla seed 0", "kfac-llla seed 1"}
    assert len({*plain.values(), *other.values()}) == 3
    text = 'title = "C"\nrecipe = "cifar10-resnet18"\nmethods = ["dnn"]\nseeds = [0, 1]\n[evaluate]\n'
    text += 'validation = "cifar10/val-10"\ntest = "cifar10/test"\ncalibration = "companion"\n'
    first, second = stems(text), stems(text.replace("[0, 1]", "[1, 0]"))
    assert first.keys() == second.keys()
    assert not {*first.values()} & {*second.values()}
    alone = text.replace("companion", "companion-per-seed")
    assert stems(alone) == stems(alone.replace("[0, 1]", "[1, 0]"))


def test_labels_too_long_for_a_file_have_names_of_their_own(tmp_path):
    """A file system takes 255 bytes; a study must not fail after its training for the want of one."""
    fields = {"pairing": '"derangement"', "scale": '"mean"', "lam": '"batch"', "alpha": 20.0, "eta": 1.0}
    lines = [f"objective.{part}.{name} = [{value}]" for part in ("first", "second") for name, value in fields.items()]
    grid = "\n".join(['[grid."regmixup+regcutmix"]', *lines, "momentum = [0.9, 0.8]"])
    text = MINI.replace('"dnn", "regmixup"', '"regmixup+regcutmix"').replace("[train]", f"{grid}\n[train]")
    runs = [planned for planned in plan_mini(tmp_path, text) if planned.config.seed == 0]
    stems = {planned.stem for planned in runs}
    assert len(runs) == len(stems) == 2
    assert all(len(planned.label) > 150 for planned in runs)
    assert all(len(stem) == 150 + len("-12345678") for stem in stems)


def test_the_train_images_are_those_of_each_run_and_not_of_the_last_of_the_recipe(tmp_path):
    text = MINI.replace("[train]", '[grid.dnn]\ntrain_set = ["digits/train", "digits/val"]\n[train]')
    text = text.replace('validation = "digits/val"\n', "")
    entries = [planned.entry("folder") for planned in plan_mini(tmp_path, text)][:3]
    assert [(entry["label"], entry["train_images"]) for entry in entries] == [
        ("dnn(train_set=digits/train)", 450), ("dnn(train_set=digits/val)", 448), ("regmixup", 450),
    ]  # fmt: skip


def test_a_report_needs_no_plugin_to_know_the_score_of_its_method(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "regmixup", replace(METHODS["regmixup"], score="energy"))
    plain, own = [planned.entry("") for planned in plan_mini(tmp_path)][:2]
    assert [plain["score"], own["score"]] == ["dempster_shafer", "energy"]


def test_values_that_the_label_does_not_name_are_told_beside_the_papers_number(tmp_path):
    for values, labels, changed in (("5", ["dnn", "regmixup"], 1), ("[5]", ["dnn", "regmixup(alpha=5)"], 0)):
        text = MINI.replace("[train]", f"[grid.regmixup]\nobjective.alpha = {values}\n[train]")
        plain, mixed = [planned.entry("") for planned in plan_mini(tmp_path, text)][:2]
        assert [plain["label"], mixed["label"]] == labels
        assert plain["changed"] == mixed["changed"][:1] == ["epochs 5 instead of 40"]
        assert len(mixed["changed"]) == 1 + changed
        if changed:
            assert re.fullmatch(r"objective RegMixup\(alpha=5.* instead of RegMixup\(alpha=20.*", mixed["changed"][1])


def test_changes_of_a_recipe_are_those_that_the_method_does_not_ask_for(tmp_path):
    text = """
title = "SNGP"
recipe = "cifar10-wrn28-10"
methods = ["sngp", "mixup"]
seeds = [0]
[train]
batch_size = 128
precision = "bfloat16"
[[grid.sngp]]
[[grid.mixup]]
milestones = [[60]]
[[grid.mixup]]
schedule = "cosine"
milestones = [[]]
[evaluate]
test = "cifar10/test"
"""
    plan = plan_mini(tmp_path, text)
    assert [planned.entry("")["changed"] for planned in plan] == [
        ["batch_size 128 instead of 256"],
        ["milestones 60 instead of 150, 250"],
        ["schedule cosine instead of step", "milestones none instead of 150, 250"],
    ]
