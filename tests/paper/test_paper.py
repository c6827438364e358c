"""The paper's tables: what was copied, and how a number is looked up."""

import hashlib
import subprocess
import sys
from pathlib import Path

from regmixup import data, networks
from regmixup.methods import METHODS
from regmixup.objectives.regmixup import RegMixup
from regmixup.paper import TABLES, At, _index, method_of, paper_value, paper_value_of
from regmixup.types import MEAN, Row

CELLS = {
    At(table.number, line.name, key.name): (table, line, key, cell)
    for table in TABLES.values()
    for line, key, cell in table.cells()
}
# The same number may stand in several tables; here once per quantity: (method, network, train set, dataset, metric, T).
PLACES = {}
for _at, (_table, _line, _key, _cell) in CELLS.items():
    if _cell.number is not None and _key.metric != "selected":
        _place = (
            method_of(_table, _line, _key),
            _key.network,
            _key.train_set,
            _key.dataset,
            _key.metric,
            _table.posthoc,
        )
        PLACES.setdefault(_place, []).append((_at, _cell.text))


def test_every_cell_is_as_it_was_when_checked_against_the_papers_source():
    """Numbers, marks and labels were compared one by one with the paper's source; this pins the result."""
    assert len(TABLES) == 21
    assert sum(cell.number is not None for *_, cell in CELLS.values()) == 900
    titles = [(table.number, section.title) for table in TABLES.values() for section in table.sections]
    cells = [(*at, cell.text, int(cell.bold), int(cell.underline)) for at, (*_, cell) in CELLS.items()]
    text = "\n".join("|".join(map(str, line)) for line in (*titles, *cells))
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "8a6680da0665af256d71201d9356975072053d7f4dafb596354990542e52d764"
    )


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
    assert (
        sum(len(cells) > 1 for cells in PLACES.values()) == 34
    )  # Table 1 is 15 numbers of others, RegMixup in Tables 18 and 19 another 19
    for place, cells in PLACES.items():
        assert len({text for _, text in cells}) == 1, place


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


def test_a_marking_slip_does_not_put_the_number_in_doubt():
    place = {"network": "resnet50", "train_set": "cifar10/train", "dataset": "svhn/test", "metric": "auroc"}
    assert paper_value(method="deep-ensemble", **place).slip is None


def test_auroc_is_the_papers_for_the_papers_score_alone():
    place = {"dataset": "svhn/test", "metric": "auroc", **HERE}
    assert paper_value(method="mixup", score="entropy", **place).text == "87.53"
    assert paper_value(method="mixup", score="dempster_shafer", **place) is None
    assert paper_value(method="regmixup", score="dempster_shafer", **place).text == "96.72"
    assert paper_value(method="regmixup", score="energy", **place) is None


def test_a_point_of_a_cross_validation_is_found_however_its_numbers_are_written():
    place = {
        "network": "resnet50",
        "train_set": "cifar100/train-90",
        "dataset": "cifar100/val-10",
        "metric": "accuracy",
    }
    for name in ("regmixup(alpha=0.5, eta=0.1)", "regmixup(alpha=.5,eta=0.10)"):
        assert paper_value(method=name, **place).value == 0.7856
    assert paper_value(method="regmixup(alpha=20.0, eta=1.0)", **place).text == "80.18"
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
        missing = [cell.text for *_, cell in table.cells() if cell.number is not None and cell.text not in section]
        assert not missing, table.number
