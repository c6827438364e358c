"""Study files: read, checked, expanded."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from regmixup.study.planned_run import Evaluation

from regmixup import study as public
from regmixup.study.plan import load_study, read_header
from tests.study.mini import MINI, write_mini


def test_a_study_file_becomes_runs_seed_by_seed(tmp_path):
    runs = list(load_study(str(write_mini(tmp_path))).runs())
    assert [(planned.method, planned.config.seed) for planned in runs] == [
        ("dnn", 0), ("regmixup", 0), ("dnn", 1), ("regmixup", 1),
    ]  # fmt: skip
    assert all(planned.config.epochs == 5 and planned.config.batch_size == 64 for planned in runs)


def test_the_keys_for_readers_are_optional_and_change_nothing_about_the_study(tmp_path):
    plain = load_study(str(write_mini(tmp_path)))
    bare = read_header(tmp_path / "mini.toml")
    assert (bare.title, bare.cost, bare.expected, bare.paper) == ("Mini", "", "", ())
    keys = 'cost = "little"\nexpected = """\nnothing\nnew"""\npaper = ["Table 1", "Figure 2"]\n'
    headed = load_study(str(write_mini(tmp_path, keys + MINI)))
    found = read_header(tmp_path / "mini.toml")
    assert (found.cost, found.expected, found.paper) == ("little", "nothing new", ("Table 1", "Figure 2"))
    assert headed == plain


def test_the_public_names_of_the_package_are_those_of_its_modules():
    assert {name for name in public.__all__ if getattr(public, name) is None} == set()
    assert public.load is load_study
    assert "digits" in public.available()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = public.nothing


def test_a_method_may_have_seeds_of_its_own_and_the_first_seeds_come_first(tmp_path):
    text = MINI.replace("[train]", "[seeds_of]\nregmixup = [0, 2]\n[train]", 1)
    study = load_study(str(write_mini(tmp_path, text)))
    assert [(planned.method, planned.config.seed) for planned in study.runs()] == [
        ("dnn", 0), ("regmixup", 0), ("dnn", 1), ("regmixup", 2),
    ]  # fmt: skip
    plain = load_study(str(write_mini(tmp_path)))
    assert replace(study, seeds_of={}).content == plain.content != study.content


def test_a_family_stands_for_all_of_its_sets():
    names = next(load_study("digits").runs()).evaluate.shift_sets()
    assert len(names) == 25
    assert "digits-c/contrast/3" in names


@pytest.mark.parametrize(("asked", "methods"), [("true", ["dnn", "regmixup"]), ('["dnn"]', ["dnn"])])
def test_refreshed_batch_norm_is_a_further_line_of_the_same_run(tmp_path, asked, methods):
    text = MINI.replace("seeds", f"refresh_batch_norm = {asked}\nseeds")
    text = text.replace("[train]", "[grid.regmixup]\nobjective.alpha = [1, 10]\n[train]")
    runs = list(load_study(str(write_mini(tmp_path, text))).runs())
    twins = [(plain, twin) for plain, twin in pairwise(runs) if twin.batch_norm == "refreshed"]
    assert [twin.label for _, twin in twins if twin.config.seed == 0] == {
        1: ["dnn(bn=refreshed)"],
        2: ["dnn(bn=refreshed)", "regmixup(alpha=1, bn=refreshed)", "regmixup(alpha=10, bn=refreshed)"],
    }[len(methods)]
    for plain, twin in twins:
        assert twin.config == plain.config
        assert twin.stem != plain.stem


def test_statistics_of_augmented_and_of_mixed_images_are_lines_of_their_own(tmp_path):
    asked = 'refresh_batch_norm = ["dnn"]\nrefresh_augmented = true\nrefresh_mixed = true\nseeds'
    labels = [one.label for one in load_study(str(write_mini(tmp_path, MINI.replace("seeds", asked)))).runs()]
    kinds = ("refreshed", "refreshed-augmented", "refreshed-mixed")
    assert labels[:5] == ["dnn", *(f"dnn(bn={kind})" for kind in kinds), "regmixup"]
    for name in ("refresh_augmented", "refresh_mixed"):
        path = write_mini(tmp_path, MINI.replace("seeds", f"{name} = true\nseeds"))
        with pytest.raises(ValueError, match=f"{name} must be false where refresh_batch_norm names no method"):
            load_study(str(path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "seeds",
            'refresh_batch_norm = ["dn"]\nseeds',
            "unknown method of refresh_batch_norm 'dn': did you mean 'dnn'",
        ),
        ("seeds", "refresh_batch_norm = 1\nseeds", "refresh_batch_norm must be bool or a list of str, got 1"),
        ("seeds", "refresh_batch_norm = true\nselect = true\nseeds", "refresh_batch_norm must be false"),
        ('"regmixup"]', '"regmixpu"]', "did you mean 'regmixup'"),
        (
            'title = "Mini"',
            r'title = "\u001b[2J"',
            r"study.title must be text without control characters, got '.x1b\[2J'",
        ),
        ("[train]", '[train]\nnetwork = "a\\u202e"', "study.train.network must be text without control characters"),
        ("seeds = [0, 1]", "seeds = [0, 0]", "seeds .* without repetition"),
        ("seeds = [0, 1]", "seeds = []", "seeds .* without repetition"),
        ("seeds = [0, 1]", "sedes = [0, 1]", "did you mean 'seeds'"),
        ('recipe = "digits"', 'recipe = "digit"', "did you mean 'digits'"),
        ('recipe = "digits"', "", r"study must have recipe \(str\), or recipes"),
        ('recipe = "digits"', 'recipe = "digits"\nrecipes = ["digits"]', r"study must have recipe \(str\), or recipes"),
        ('recipe = "digits"', 'recipes = ["digits", "digits"]', "without repetition"),
        ("[evaluate]", "[evaluate.cifar10]", "unknown recipe or family of a section 'cifar10'"),
        ("[evaluate]", "[evaluate.digit]", "unknown field of Evaluation in study.evaluate 'digit'"),
        (
            "[train]",
            "[only]\nregmixpu = []\n[train]",
            "unknown method under .only. 'regmixpu': did you mean 'regmixup'",
        ),
        ("[train]", "[seeds_of]\ndn = [0]\n[train]", "unknown method under .seeds_of. 'dn': did you mean 'dnn'"),
        ("[train]", "[seeds_of]\ndnn = 3\n[train]", "seeds_of.dnn must be a list of int, got 3"),
        ("[train]", "[seeds_of]\ndnn = [1, 1]\n[train]", "seeds_of.dnn .* without repetition"),
        ("[train]", '[only]\ndnn = ["digit"]\n[train]', "unknown recipe of only.dnn 'digit': did you mean 'digits'"),
        ("[train]", '[only]\ndnn = "digits"\n[train]', "only.dnn must be a list of recipes, got 'digits'"),
        ("[train]", "[train.digits]\nseed = 5\n[train]", r"seed cannot stand under \[train\]"),
        ("[train]", "[grid.mixup]\nobjective.alpha = [1]\n[train]", "unknown method with a grid 'mixup'"),
        ("[train]", "[grid.dnn]\nobjective.alpha = [1]\n[train]", "unknown field of ERM in grid 'alpha'"),
        ("[train]", "[grid.dnn]\nconstraint.c = [1]\n[train]", "grid names constraint.c, but constraint is None here"),
        ("[train]", "[grid.dnn]\nposthoc.factor = [1]\n[train]", "grid names posthoc.factor, but posthoc is None here"),
        ("[train]", "[grid.regmixup]\nobjective.alpha = [-1]\n[train]", "alpha must be a finite number > 0, got -1"),
        (
            "[train]",
            "[grid.regmixup]\nobjective.alpha = [1, 1]\n[train]",
            "alpha must be one or more, without repetition",
        ),
        ("[train]", "[grid.dnn]\nepohcs = [1]\n[train]", "did you mean 'epochs'"),
        ("[train]", "[grid.dnn]\nseed = [1, 2]\n[train]", r"seed cannot stand under \[grid.dnn\]"),
        ("[train]", "[grid.dnn]\nobjective = 'mixup'\n[train]", r"objective cannot stand under \[grid.dnn\]"),
        ("[train]", "[grid]\ndnn = 3\n[train]", "grid.dnn must be a table, or several"),
        ("[train]", "[grid]\ndnn = []\n[train]", "grid.dnn must be a table, or several"),
        ("[train]", "[[grid.dnn]]\nlr = 0.1\n[[grid.dnn]]\nlr = 0.2\n[train]", "a label of its own, got dnn twice"),
        ("seeds =", 'reuses = ["../up"]\nseeds =', "reuses must be names"),
        ("[train]", "[only]\ndnn = []\n[train]", r"only.dnn must be a list of recipes, got \[\]"),
        ('"photographs/test"', '"photograph/test"', "unknown dataset of ood 'photograph/test': did you mean"),
        ("shift = [", 'shift = ["folder", ', "unknown dataset of shift 'folder': Available: folder:PATH"),
        ("shift = [", 'shift = ["folder:", ', "unknown dataset of shift 'folder:': Available: folder:PATH"),
        ("ood = [", 'ood = ["folder:", ', "unknown dataset of ood 'folder:': Available: folder:PATH"),
        ('test = "digits/test"', 'test = "folder"', "unknown dataset of test 'folder': Available: folder:PATH"),
        ('"digits/val"', '"folder:"', "unknown dataset of validation 'folder:': Available: folder:PATH"),
        ("epochs = 5", "epohcs = 5", "did you mean 'epochs'"),
        ("epochs = 5", "seed = 5", r"seed cannot stand under \[train\]"),
        ("epochs = 5", 'flip = "no"', "flip must be true or false, got 'no'"),
        ("batch_size = 64", f"batch_size = {10**20}", f"batch_size must be an integer <= 2147483647, got {10**20}"),
        ("epochs = 5", f"lr = 1{'0' * 400}", "lr must be a finite number > 0, got 1000"),
        ('title = "Mini"', f"title = {'[' * 9999}", r"cannot read study .*mini\.toml: maximum recursion depth"),
        ('title = "Mini"', "title = '\0'", r"cannot read study .*mini\.toml: "),
        ('"path:digits/test"', '"digits/test"', "profile must be a `path:` set"),
        ('"photographs/test"', '"photographs/test", "photographs/test"', "ood must name each dataset once"),
        ('test = "digits/test"\n', "\n", "evaluate must name a test set where it names shifted"),
        (
            'validation = "digits/val"',
            'validation = "digits/test"',
            "validation must not be a test, shifted or OOD set",
        ),
        (
            'validation = "digits/val"',
            'validation = "digits/train"',
            "validation must be images that were not trained on",
        ),
        ("[evaluate]", '[evaluate]\ncalibration = "companions"', "did you mean 'companion'"),
        ("[evaluate]", '[evaluate]\ncalibration = "companion"', "validation must be part of a split"),
        (
            'validation = "digits/val"',
            'calibration = "companion"',
            "validation must be named with calibration 'comp",
        ),
        (
            MINI.partition("[evaluate]")[2],
            '\nvalidation = "cifar10/val-10"\ncalibration = "companion"\n',
            "calibration must be \"holdout\" where evaluate names no test set: .* got 'companion'",
        ),
        ("[train]", "select = true\n[train]", "selects must evaluate on a validation set and on nothing else"),
        ('title = "Mini"', "title = ", "cannot read study"),
        ('title = "Mini"', "title = 3", "study.title must be str, got 3"),
        ("seeds = [0, 1]", 'seeds = ["0"]', "study.seeds must be int, got '0'"),
        ("seeds = [0, 1]", "seeds = 5", "study.seeds must be a list of int, got 5"),
        ('methods = ["dnn", "regmixup"]', 'methods = "dnn"', "study.methods must be a list of str, got 'dnn'"),
        ("shift = [", 'shift = "digits-c" # [', "study.evaluate.shift must be a list of str, got 'digits-c'"),
        ("[train]\nepochs = 5\nbatch_size = 64\n", "train = 5", "study.train must be a table, got 5"),
        (
            'title = "Mini"',
            'title = "x"\nname = "../x"',
            "name must be letters, digits, .*it names a folder, got '../x'",
        ),
        ('title = "Mini"', 'title = "x"\nname = ""', "name must be letters, digits, .*, got ''"),
    ],
)
def test_a_wrong_study_file_is_explained(tmp_path, old, new, message):
    assert old in MINI
    path = write_mini(tmp_path, MINI.replace(old, new))
    with pytest.raises(ValueError, match=message):
        list(load_study(str(path)).runs())


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("title", "str"),
        ("methods", "a list of str"),
        ("seeds", "a list of int"),
        ("evaluate", "a table"),
    ],
)
def test_a_missing_key_is_named_with_the_file_and_what_it_must_be(tmp_path, key, kind):
    text = MINI[: MINI.index("[evaluate]")] if key == "evaluate" else re.sub(rf"(?m)^{key} = .*$", "", MINI)
    path = write_mini(tmp_path, text)
    with pytest.raises(ValueError, match=rf"{path}: study must have {key} \({kind}\); found ") as error:
        load_study(str(path))
    assert f"found {key}" not in str(error.value)


def test_a_value_that_is_refused_is_told_with_the_file(tmp_path):
    path = write_mini(tmp_path, MINI.replace('"regmixup"]', '"regmixpu"]'))
    with pytest.raises(ValueError, match=f"{path}: unknown method 'regmixpu'"):
        load_study(str(path))
    path = write_mini(tmp_path, MINI.replace("epochs = 5", "epochs = 0"))
    with pytest.raises(ValueError, match=f"cannot plan dnn, digits, of study {path}: epochs must be an integer >= 1"):
        list(load_study(str(path)).runs())


def test_an_unknown_study_is_answered_with_the_list():
    with pytest.raises(ValueError, match=r"did you mean 'digits'\? Available: accuracy, .*digits"):
        load_study("digit")
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
    runs = list(load_study(str(write_mini(tmp_path, CIFAR))).runs())
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
    for planned in load_study(str(write_mini(tmp_path, CIFAR))).runs():
        family = planned.config.train_set.partition("/")[0]
        assert planned.config.train_set == f"{family}/train"
        expected = replace(planned.config, train_set=f"{family}/train-90", seed=3)
        assert planned.companion == expected


def test_every_seed_can_have_a_companion_of_its_own(tmp_path):
    text = CIFAR.replace('"companion"', '"companion-per-seed"')
    plan = list(load_study(str(write_mini(tmp_path, text))).runs())
    assert (
        [planned.companion.seed for planned in plan] == [planned.config.seed for planned in plan] == [3] * 5 + [4] * 5
    )
    assert {planned.companion.train_set for planned in plan} == {"cifar10/train-90", "cifar100/train-90"}


def test_cifar_c_stands_for_the_15_corruptions_of_the_benchmark():
    names = Evaluation(test="cifar10/test", shift=("cifar10-c",)).shift_sets()
    assert len(names) == 75
    assert not any("speckle" in name for name in names)
    assert Evaluation(test="cifar10/test", shift=("cifar10-c/saturate/1",)).shift_sets() == ["cifar10-c/saturate/1"]


def test_what_a_study_records_is_what_its_runs_use(tmp_path):
    record = load_study(str(write_mini(tmp_path, CIFAR)), "smoke").record
    assert record["scale"] == "smoke"
    assert record["name"] == "mini-smoke"
    assert record["recipes"]["cifar10-wrn28-10"]["train_set"] == "digits/train"
    assert record["evaluate"]["test"] == "digits/test"
    assert record["methods"] == ["dnn", "regmixup"]
    json.dumps(record)


def test_an_edited_file_has_other_content_and_a_moved_one_has_not(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    first = load_study(str(write_mini(tmp_path, CIFAR)))
    assert load_study(str(write_mini(tmp_path / "elsewhere", CIFAR))).content == first.content
    assert (
        load_study(str(write_mini(tmp_path, CIFAR.replace("seeds = [3, 4]", "seeds = [3]")))).content != first.content
    )
