"""The paper's tables: what was copied, and how a number is looked up."""

import hashlib
import subprocess
import sys
from pathlib import Path

from regmixup import data, networks
from regmixup.methods import METHODS
from regmixup.objectives.regmixup import RegMixup
from regmixup.paper import TABLES, _index, paper_value, paper_value_of
from regmixup.types import MEAN, Row


def test_every_number_is_as_it_was_when_checked_against_the_papers_source():
    """Numbers and labels were compared one by one with the paper's source; this pins the result."""
    cells = [(table.number, cell) for table in TABLES.values() for cell in table.cells]
    assert (len(TABLES), len(cells)) == (21, 900)
    text = "\n".join(f"{number}|{cell.line}|{cell.column}|{cell.text}" for number, cell in cells)
    digest = "f2e28f1a3d6afc6b745962b0218aa1e4a85783795f0666f82be72251eb6892b5"
    assert hashlib.sha256(text.encode()).hexdigest() == digest


def test_rows_and_columns_have_our_names():
    for method, network, train_set, dataset, metric, posthoc in _index():
        assert method.partition("(")[0] in METHODS
        assert network in networks.NETWORKS or network == "timm/resnet50"
        assert f"{train_set}/train" in data.names()
        assert dataset in data.names() or dataset in data.FAMILIES
        assert posthoc in ("none", "temperature")
        assert metric in (
            *("accuracy", "ece", "adaptive_ece", "auroc"),
            *("temperature", "prior_variance", "alpha", "c", "ratio", "samples"),
        )


def test_a_number_that_stands_in_several_tables_is_the_same_in_all():
    """Table 1 is 15 numbers of others, RegMixup in Tables 18 and 19 another 19."""
    assert sum("," in value.table for value in _index().values()) == 34
    texts = {(table.number, cell.text) for table in TABLES.values() for cell in table.cells}
    for value in _index().values():
        assert {(number, value.text) for number in value.table.split(", ")} <= texts


def test_our_methods_have_the_values_that_table_9_selects():
    recipes = {
        "cifar10-wrn28-10": ("wrn28-10", "cifar10", "cifar10/test"),
        "cifar10-resnet50": ("resnet50", "cifar10", "cifar10/test"),
        "cifar100-wrn28-10": ("wrn28-10", "cifar100", "cifar100/test"),
        "cifar100-resnet50": ("resnet50", "cifar100", "cifar100/test"),
        "imagenet-resnet50": ("timm/resnet50", "imagenet", "imagenet/val-test"),
    }
    default = {"alpha": RegMixup().alpha}
    assert RegMixup().eta == 1
    compared = 0
    for recipe, (network, train_set, dataset) in recipes.items():
        for name, part, field in (
            ("mixup", "objective", "alpha"),
            ("regmixup", "objective", "alpha"),
            ("dnn-sn", "constraint", "c"),
            ("dnn-srn", "constraint", "ratio"),
            ("kfac-llla", "posthoc", "prior_variance"),
            ("kfac-llla", "posthoc", "samples"),
        ):
            paper = paper_value(method=name, network=network, train_set=train_set, dataset=dataset, metric=field)
            if paper is not None:
                fields = {**(default if name == "regmixup" else {}), **getattr(METHODS[name].at(recipe), part).fields}
                assert fields[field] == paper.value, (name, recipe)
                compared += 1
    assert compared == 5 + 5 + 4 * 4


HERE = {"network": "wrn28-10", "train_set": "cifar10/train"}


def test_looking_up_a_number():
    found = paper_value(method="mixup", dataset="cifar10-c", metric="adaptive_ece", posthoc="temperature", **HERE)
    assert (found.value, found.text, found.table) == (0.0793, "7.93", "8")
    assert "with and without temperature scaling" in found.slip
    assert (
        paper_value(method="dnn", dataset="cifar10/test", metric="temperature", posthoc="temperature", **HERE).value
        == 1.32
    )
    assert paper_value(method="dnn", dataset="cifar10/test", metric="nll", **HERE) is None
    assert paper_value(method="bimodal", dataset="cifar10/test", metric="accuracy", **HERE) is None


def test_auroc_is_the_papers_for_the_papers_score_alone():
    place = {"dataset": "svhn/test", "metric": "auroc", **HERE}
    assert paper_value(method="mixup", score="entropy", **place).text == "87.53"
    assert paper_value(method="mixup", score="dempster_shafer", **place) is None
    assert paper_value(method="regmixup", score="dempster_shafer", **place).text == "96.72"
    assert paper_value(method="regmixup", score="energy", **place) is None


def test_a_point_of_a_cross_validation_is_found_by_its_values():
    place = {
        "network": "resnet50",
        "train_set": "cifar100/train-90",
        "dataset": "cifar100/val-10",
        "metric": "accuracy",
    }
    assert paper_value(method="regmixup(alpha=0.5, eta=0.1)", **place).value == 0.7856
    assert paper_value(method="regmixup(alpha=20, eta=1)", **place).text == "80.18"
    assert paper_value(method="regmixup(alpha=7, eta=1)", **place) is None


def test_a_row_finds_its_number_by_what_it_measures():
    row = Row(method="sngp", network="wrn28-10-sngp", train_set="cifar10/train", metric="accuracy")

    def at(dataset, **fields):
        return paper_value_of(Row(**{**vars(row), "dataset": dataset, **fields}))

    assert at("cifar10-c (rebuilt)", corruption=MEAN).text == "78.37"
    assert at("cifar10-c", corruption="fog", severity=3) is None
    assert at("cifar10-c", corruption="fog") is None
    assert at("cifar10.1/test", corruption="cifar10.1/test").text == "90.80"
    assert at("cifar10.1/test (rebuilt)", corruption="cifar10.1/test").text == "90.80"
    imagenet = {"method": "dnn", "network": "timm/resnet50", "train_set": "imagenet/train"}
    assert at("imagenet-a/test (200 classes)", **imagenet).text == "2.76"


def test_the_tables_come_without_torch():
    code = "import sys, regmixup.report.tables; assert not {'torch', 'scipy', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_page_has_every_number_of_every_table():
    page = (Path(__file__).parents[2] / "docs" / "paper-tables.md").read_text()
    for table in TABLES.values():
        section = page.partition(f"## Table {table.number}\n")[2].partition("\n## ")[0]
        assert not [cell.text for cell in table.cells if cell.text not in section], table.number
