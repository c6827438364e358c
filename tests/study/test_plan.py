"""Study files: read, checked, expanded."""

import re

import pytest

from regmixup.study.plan import load_study, studies
from tests.study.mini import MINI, write_mini


def test_every_packaged_study_parses_and_expands_and_is_headed_by_command_cost_and_expectation():
    assert "digits" in studies()
    for name, path in studies().items():
        study = load_study(name)
        runs = list(study.runs())
        assert len(runs) == len(study.methods) * len(study.seeds)
        assert len({planned.config.name for planned in runs}) == len(runs)
        head = path.read_text().split("\n\n")[0]
        for word in (f"regmixup study {name}", "cost", "expected"):
            assert word in head, f"{name} does not state its {word}"


def test_a_study_file_becomes_runs_seed_by_seed(tmp_path):
    runs = list(load_study(str(write_mini(tmp_path))).runs())
    assert [(planned.method, planned.config.seed) for planned in runs] == [
        ("dnn", 0), ("regmixup", 0), ("dnn", 1), ("regmixup", 1),
    ]  # fmt: skip
    assert all(planned.config.epochs == 5 and planned.config.batch_size == 64 for planned in runs)


def test_a_family_stands_for_all_of_its_sets():
    study = load_study("digits")
    assert len(study.evaluate.shift_sets()) == 25
    assert "digits-c/contrast/3" in study.evaluate.shift_sets()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"regmixup"]', '"regmixpu"]', "did you mean 'regmixup'"),
        ("seeds = [0, 1]", "seeds = [0, 0]", "seeds .* without repetition"),
        ("seeds = [0, 1]", "seeds = []", "seeds .* without repetition"),
        ("seeds = [0, 1]", "sedes = [0, 1]", "did you mean 'seeds'"),
        ('recipe = "digits"', 'recipe = "digit"', "did you mean 'digits'"),
        ('"photographs/test"', '"photograph/test"', "unknown dataset"),
        ("epochs = 5", "epohcs = 5", "did you mean 'epochs'"),
        ("epochs = 5", "seed = 5", r"seed cannot stand under \[train\]"),
        ("epochs = 5", 'flip = "no"', "flip must be true or false, got 'no'"),
        ('"path:digits/test"', '"digits/test"', "profile must be a `path:` set"),
        ('"photographs/test"', '"photographs/test", "photographs/test"', "ood must name each dataset once"),
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
        ("recipe", "str"),
        ("methods", "a list of str"),
        ("seeds", "a list of int"),
        ("evaluate", "a table of Evaluation fields"),
        ("evaluate.validation", "str"),
        ("evaluate.test", "str"),
    ],
)
def test_a_missing_key_is_named_with_the_file_and_what_it_must_be(tmp_path, key, kind):
    table, _, entry = key.rpartition(".")
    text = MINI[: MINI.index("[evaluate]")] if key == "evaluate" else re.sub(rf"(?m)^{entry} = .*$", "", MINI)
    path = write_mini(tmp_path, text)
    place = f"study.{table}" if table else "study"
    with pytest.raises(ValueError, match=rf"{path}: {place} must have {entry} \({kind}\); found ") as error:
        load_study(str(path))
    assert f"found {entry}" not in str(error.value)


def test_a_value_that_is_refused_is_told_with_the_file(tmp_path):
    path = write_mini(tmp_path, MINI.replace('"regmixup"]', '"regmixpu"]'))
    with pytest.raises(ValueError, match=f"{path}: unknown method 'regmixpu'"):
        load_study(str(path))


def test_an_unknown_study_is_answered_with_the_list():
    with pytest.raises(ValueError, match=r"did you mean 'digits'\? Available: digits"):
        load_study("digit")
    with pytest.raises(ValueError, match=r"no\.toml does not exist"):
        load_study("no.toml")
