"""Study files: read, checked, expanded."""

import pytest

from regmixup.study.plan import load_study, studies
from tests.study.mini import MINI, write_mini


def test_every_packaged_study_parses_and_expands_and_is_headed_by_command_cost_and_expectation():
    assert "digits" in studies()
    for name, path in studies().items():
        study = load_study(name)
        runs = list(study.runs())
        assert len(runs) == len(study.methods) * len(study.seeds)
        assert len({config.name for _, config in runs}) == len(runs)
        head = path.read_text().split("\n\n")[0]
        for word in (f"regmixup study {name}", "cost", "expected"):
            assert word in head, f"{name} does not state its {word}"


def test_a_study_file_becomes_runs_seed_by_seed(tmp_path):
    runs = list(load_study(str(write_mini(tmp_path))).runs())
    assert [(method, config.seed) for method, config in runs] == [
        ("dnn", 0), ("regmixup", 0), ("dnn", 1), ("regmixup", 1),
    ]  # fmt: skip
    assert all(config.epochs == 5 and config.batch_size == 64 for _, config in runs)


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
        ('title = "Mini"', "", "title"),
        ('title = "Mini"', "title = 3", "title must be str, got 3"),
        ("seeds = [0, 1]", 'seeds = ["0"]', "seeds must be int, got '0'"),
    ],
)
def test_a_wrong_study_file_is_explained(tmp_path, old, new, message):
    path = write_mini(tmp_path, MINI.replace(old, new))
    with pytest.raises(ValueError, match=message):
        list(load_study(str(path)).runs())


def test_an_unknown_study_is_answered_with_the_list():
    with pytest.raises(ValueError, match=r"did you mean 'digits'\? Available: digits"):
        load_study("digit")
    with pytest.raises(ValueError, match=r"no\.toml does not exist"):
        load_study("no.toml")
