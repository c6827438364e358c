"""OpenOOD's leaderboard rows: groups that are complete have a mean, others say what they lack."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regmixup.cli import main
from regmixup.report.openood import COLUMNS, openood_rows, write_openood
from regmixup.report.results import load_results

NEAR = ["cifar100/openood-cifar10", "tiny-imagenet/openood-cifar10"]
FAR = ["mnist/test", "svhn/test", "folder:/data/textures", "places365/test"]
ARCHIVES = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def results(finished_study):
    return load_results(finished_study.folder)


def measured(results, names, test="cifar10/openood-test"):
    """The results as if the digits were CIFAR's, and the OOD set several, the AUROC of each a little lower."""
    rows = []
    for row in results.rows:
        if row.dataset == "photographs/test":
            rows += [replace(row, dataset=name, value=row.value - place / 100) for place, name in enumerate(names)]
        else:
            rows.append(replace(row, dataset=test) if row.dataset == "digits/test" else row)
    return replace(results, rows=rows)


def rows_of(results):
    (setting,) = results.settings
    return {(row[0], row[1]): dict(zip(COLUMNS.split(","), row, strict=True)) for row in openood_rows(setting)}


def mean(results, label, metric, names, score=""):
    wanted = {"method": label, "metric": metric, "score": score, "posthoc": "none", "corruption": ""}
    rows = [row for row in results.rows if all(getattr(row, field) == value for field, value in wanted.items())]
    return f"{100 * np.mean([row.value for row in rows if row.dataset in names]):.2f}"


@pytest.mark.parametrize(("score", "name"), [("max_probability", "MSP"), ("energy", "EBO")])
def test_complete_groups_have_their_means_over_sets_and_seeds(results, score, name):
    complete = measured(results, [*NEAR, "digits-mirrored/test", *FAR])
    row = rows_of(complete)["regmixup", name]
    assert row["Near-OOD_AUROC"] == mean(complete, "regmixup", "auroc", NEAR, score)
    assert row["Far-OOD_AUROC"] == mean(complete, "regmixup", "auroc", FAR, score)
    assert row["ID_Accuracy"] == mean(complete, "regmixup", "accuracy", ["cifar10/openood-test"])
    assert row["Additional_Description"] == "5 epochs, 2 seeds"
    assert row["Near-OOD_AUROC"] != row["Far-OOD_AUROC"]


@pytest.mark.parametrize("gone", FAR)
def test_an_incomplete_group_has_no_mean_but_names_what_it_lacks(results, gone):
    some = measured(results, [*NEAR, *(name for name in FAR if name != gone)])
    row = rows_of(some)["dnn", "MSP"]
    present = [name for name in FAR if name != gone]
    lacks = {"svhn/test": "svhn/test", FAR[2]: "textures"}.get(gone, gone.partition("/")[0])
    over = mean(some, "dnn", "auroc", present, "max_probability")
    assert row["Far-OOD_AUROC"] == ""
    assert row["Near-OOD_AUROC"] == mean(some, "dnn", "auroc", NEAR, "max_probability")
    assert row["Additional_Description"].endswith(f"; Far-OOD lacks {lacks} ({over} over {', '.join(present)})")


def test_all_images_of_a_set_are_not_openoods_list(results):
    whole = ["cifar100/test", "tiny-imagenet/val"]
    row = rows_of(measured(results, whole, test="cifar10/test"))["dnn", "MSP"]
    description = row["Additional_Description"]
    assert row["Near-OOD_AUROC"] == row["Far-OOD_AUROC"] == ""
    assert "; in-distribution images are cifar10/test, not cifar10/openood-test; Near-OOD lacks" in description
    assert f"Near-OOD lacks {', '.join(NEAR)} (" in description
    assert "over cifar100/test, tiny-imagenet/val); Far-OOD lacks mnist, svhn/test, textures, places365" in description


def test_other_train_sets_have_no_leaderboard(results):
    with pytest.raises(ValueError, match="study must have OOD sets for cifar10 or cifar100, 'Mini' has none"):
        write_openood(results)


@pytest.mark.filterwarnings("ignore:left out of the table")
def test_the_command_writes_the_rows_of_an_archived_study(tmp_path, capsys):
    study = "paper-resnet50"
    assert main(["report", study, "--runs", str(ARCHIVES / study), "--out", str(tmp_path), "--openood"]) == 0
    text = (tmp_path / "openood.csv").read_text()
    assert text in capsys.readouterr().out
    rows = list(csv.DictReader(text.splitlines()))
    assert ",".join(rows[0]) == COLUMNS
    assert {(row["Training"], row["Postprocessor"]) for row in rows} >= {("dnn", "MSP"), ("regmixup", "MSP")}
    assert all(row["Arch"] == "ResNet-50" and float(row["ID_Accuracy"]) > 94 for row in rows)
    assert not (tmp_path / "report.html").exists()
