"""Selection: by validation accuracy, by validation ECE where nothing is trained, and by nothing else."""

import json
import re
from dataclasses import asdict

import pytest
import torch

from regmixup.cli import main
from regmixup.storage import read_rows
from regmixup.study.plan import load_study
from regmixup.study.runner import run_study
from regmixup.study.select import Choice, select, take_selected, write_selected
from regmixup.training.config import resolve
from regmixup.types import Row
from tests.study.mini import MINI, load_mini, write_mini

# After two epochs the best temperature may lie on the edge of its range.
pytestmark = pytest.mark.filterwarnings("ignore:the best")

STUDY = """
title = "Selection"
recipe = "digits"
methods = ["regmixup", "kfac-llla", "dnn"]
seeds = [0, 1]
select = true

[train]
epochs = 2
batch_size = 150

[grid.regmixup]
objective.alpha = [0.1, 20]

[grid.kfac-llla]
posthoc.samples = 20
posthoc.prior_variance = [0.01, 1.0]

[evaluate]
validation = "digits/val"
resamples = 10
"""


@pytest.fixture(scope="module")
def selected(tmp_path_factory):
    base = tmp_path_factory.mktemp("select")
    study = load_mini(base, STUDY.replace("[0, 1]", "[0]"))
    return study, run_study(study, base / "runs", device="cpu")


def row(label, seed, metric, value, *, posthoc="none", dataset="digits/val"):
    place = {"network": "small", "train_set": "digits/train", "dataset": dataset}
    return Row(method=label, seed=seed, metric=metric, value=value, posthoc=posthoc, **place)


LABELS = ("regmixup(alpha=0.1)", "regmixup(alpha=20)", "kfac-llla(prior_variance=0.01)", "kfac-llla(prior_variance=1)")


def made_up(accuracy, ece):
    rows = []
    for label in (*LABELS, "dnn"):
        for seed in (0, 1):
            rows.append(row(label, seed, "accuracy", accuracy[label][seed]))
            rows.append(row(label, seed, "ece", ece[label][seed]))
            rows.append(row(label, seed, "temperature", 1.0 + seed, posthoc="temperature"))
    return rows


VALUES = {
    "regmixup(alpha=0.1)": (0.9, 0.5),
    "regmixup(alpha=20)": (0.8, 0.7),
    "kfac-llla(prior_variance=0.01)": (0.6, 0.6),
    "kfac-llla(prior_variance=1)": (0.5, 0.5),
    "dnn": (0.1, 0.2),
}


def test_training_fields_by_mean_accuracy_and_posthoc_fields_by_mean_ece(tmp_path):
    study = load_mini(tmp_path, STUDY)
    found = {choice.method: choice for choice in select(study, made_up(VALUES, VALUES))}
    assert found["regmixup"].fields == {"objective.alpha": 20}
    assert found["regmixup"].values == {"alpha": 20}  # 0.75 against 0.7, though one seed says otherwise
    assert (found["regmixup"].by, found["regmixup"].score) == ("accuracy", pytest.approx(0.75))
    assert found["kfac-llla"].values == {"prior_variance": 1.0}  # the smaller ECE, at the smaller accuracy
    assert (found["kfac-llla"].by, found["kfac-llla"].score) == ("ece", 0.5)
    assert (found["dnn"].values, found["dnn"].by, found["dnn"].temperature) == ({}, "", 1.5)
    assert {(choice.on, choice.seeds) for choice in found.values()} == {("digits/val", (0, 1))}


def test_rows_of_any_other_set_change_nothing(tmp_path):
    study = load_mini(tmp_path, STUDY)
    rows = made_up(VALUES, VALUES)
    foreign = [
        row(label, seed, metric, 1.0 if "0.1" in label else 0.0, dataset=name)
        for label in LABELS
        for seed in (0, 1)
        for metric in ("accuracy", "ece")
        for name in ("digits/test", "digits-c", "photographs/test")
    ]
    assert select(study, [*foreign, *rows]) == select(study, rows)


def test_of_equals_the_first_is_taken_and_an_incomplete_grid_selects_nothing(tmp_path):
    study = load_mini(tmp_path, STUDY)
    rows = made_up({**VALUES, "regmixup(alpha=0.1)": (0.7, 0.8)}, VALUES)
    assert select(study, rows)[0].values == {"alpha": 0.1}
    missing = [r for r in rows if (r.method, r.seed) != ("regmixup(alpha=20)", 1)]
    assert [choice.method for choice in select(study, missing)] == ["kfac-llla", "dnn"]


@pytest.mark.parametrize("entry", ['test = "digits/test"', 'ood = ["photographs/test"]', 'shift = ["digits-c"]'])
def test_a_study_that_selects_may_name_no_other_set(tmp_path, entry):
    with pytest.raises(ValueError, match=r"test set|nothing else"):
        load_mini(tmp_path, f"{STUDY}\n{entry}\n")


def test_nothing_but_the_validation_set_and_the_train_set_is_ever_predicted(selected):
    _, folder = selected
    predicted = {path.name for path in folder.parent.glob("*/predictions/*")}
    assert predicted == {"digits__val.safetensors", "digits__train.safetensors"}
    assert {r.dataset for r in read_rows(folder / "rows.csv")} == {"digits/val"}


def test_one_training_serves_every_point_of_a_posthoc_grid(selected):
    study, folder = selected
    assert len(list(study.runs())) == 5
    assert len(list(folder.parent.glob("*/checkpoint.safetensors"))) == 3  # kfac-llla trains like dnn


def test_a_study_that_does_not_select_passes_on_no_value_of_its_grid(tmp_path):
    """Its choices are the T of every line; no line was chosen before another."""
    text = MINI.replace("[train]", "[grid.regmixup]\nobjective.alpha = [1, 20]\n[train]")
    study, path = load_mini(tmp_path, text), tmp_path / "selected.json"
    found = select(study, [])
    assert [(choice.method, choice.values, choice.fields) for choice in found] == [
        (label, {}, {}) for label in ("dnn", "regmixup(alpha=1)", "regmixup(alpha=20)")
    ]
    path.write_text(json.dumps([asdict(choice) for choice in found]))
    with pytest.raises(ValueError, match=r"must hold a choice for a method and recipe of mini, got dnn of digits,"):
        take_selected(study, path)


def choice(recipe, method, fields, **more):
    """An entry of selected.json."""
    origin = {"study": "search", "scale": "full", **more}
    return asdict(Choice(recipe=recipe, method=method, on="", seeds=(0,), fields=fields, **origin))


def test_what_another_study_chose_is_taken_for_the_recipes_and_methods_that_both_have(tmp_path, capsys):
    path, file = tmp_path / "selected.json", str(write_mini(tmp_path))
    fields = {"objective.alpha": 3, "lr": 0.01}
    path.write_text(json.dumps([choice("digits", "regmixup", fields), choice("digits", "mixup", {"lr": 1})]))
    study = load_study(file)
    taken = take_selected(study, path)
    assert taken.name == "mini-selected"
    assert taken.about.endswith(": regmixup of digits: objective.alpha 3, lr 0.01.")
    for plain, planned in zip(study.runs(), taken.runs(), strict=True):
        if planned.method == "regmixup":
            assert (planned.config.objective.alpha, planned.config.lr) == (3, 0.01)
        else:
            assert planned == plain
    assert main(["study", file, "--selected", str(path), "--dry-run", "--runs", str(tmp_path), "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert all(resolve(planned.config, torch.device("cpu")).name in shown for planned in taken.runs())


def test_what_does_not_fit_is_not_taken(tmp_path):
    path = tmp_path / "selected.json"
    path.write_text(json.dumps([choice("digits", "mixup", {"objective.alpha": 1})]))
    with pytest.raises(ValueError, match="a choice for a method and recipe of vicinals, got mixup of digits"):
        take_selected(load_study("vicinals"), path)
    for content in ('{"recipe": "digits"}', "3", "["):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"selected must be the selected.json of a study, got .*selected\.json: "):
            take_selected(load_study("vicinals"), path)


def test_one_of_several_tables_is_chosen_by_accuracy_also_if_the_first_changes_nothing(tmp_path):
    text = STUDY.replace("[grid.regmixup]", "[[grid.regmixup]]\n[[grid.regmixup]]").replace('"kfac-llla", "dnn"', "")
    study = load_mini(tmp_path, re.sub(r"(?s)\[grid.kfac.*?\n\n", "", text))
    values = {"regmixup": (0.8, 0.01), "regmixup(alpha=0.1)": (0.9, 0.05), "regmixup(alpha=20)": (0.85, 0.03)}
    rows = [
        row(label, seed, metric, value)
        for label, own in values.items()
        for metric, value in zip(("accuracy", "ece"), own, strict=True)
        for seed in (0, 1)
    ]
    (choice,) = select(study, rows)
    assert (choice.by, choice.fields, choice.candidates) == ("accuracy", {"objective.alpha": 0.1}, 3)


def test_a_choice_from_a_shorter_grid_does_not_stay(tmp_path):
    text = MINI.replace("[train]", "[grid.regmixup]\nobjective.alpha = [1, 20]\n[train]").partition("test =")[0]
    text = text.replace('"dnn", ', "").replace("seeds", "select = true\nseeds")
    study, chosen = load_mini(tmp_path, text), tmp_path / "selected.json"
    rows = [row(planned.label, planned.config.seed, "accuracy", 0.5) for planned in study.runs()]
    for measured, exists in ((rows, True), (rows[1:], False)):
        write_selected(study, tmp_path, measured)
        assert chosen.exists() == exists


def test_choices_of_smoke_scale_or_of_another_study_are_not_taken(tmp_path):
    path, study = tmp_path / "selected.json", load_study("fast-confirm")

    def write(**more):
        choices = [choice("cifar10-resnet18", name, {"lr": 0.2}, **more) for name in study.methods]
        path.write_text(json.dumps(choices))

    write(study="fast-search")
    assert take_selected(study, path).name == "fast-confirm-selected"
    write(study="fast-search-smoke", scale="smoke")
    with pytest.raises(ValueError, match="chosen at smoke scale"):
        take_selected(study, path)
    write(study="mine")
    with pytest.raises(ValueError, match="choices of fast-search, got those of mine"):
        take_selected(study, path)
