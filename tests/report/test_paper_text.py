"""The differences and counts that the paper's text states, derived again from its tables."""

import pytest

from regmixup.paper import SLIPS, TABLES, _method

ENSEMBLE = "deep-ensemble"


def columns(*numbers):
    """The columns of some tables, each as {method: number as printed}."""
    for number in numbers:
        for section in TABLES[number].sections:
            for index, key in enumerate(section.keys):
                rows = ((_method(TABLES[number], row, key), row.cells[index].number) for row in section.rows)
                yield {method: value for method, value in rows if value is not None}


def column(number, name):
    """One column by its name."""
    found = {
        _method(TABLES[number], row, key): cell.number for row, key, cell in TABLES[number].cells() if key.name == name
    }
    return {method: value for method, value in found.items() if value is not None}


def texts():
    return [slip.sentence for slip in SLIPS if slip.kind == "text"]


WRN_TIN, WRN_SVHN = "wrn28-10 cifar10 tiny-imagenet/val", "wrn28-10 cifar10 svhn/test"
WRN_100, WRN_10C, WRN_100C = (
    "wrn28-10 cifar100 cifar100/test",
    "wrn28-10 cifar10 cifar10-c",
    "wrn28-10 cifar100 cifar100-c",
)
IN, IN_A, IN_V2 = (
    f"timm/resnet50 imagenet {name}" for name in ("imagenet/val-test", "imagenet-a/test", "imagenet-v2/test")
)


@pytest.mark.parametrize(
    ("table", "name", "better", "worse", "stated"),
    [
        ("1", WRN_SVHN, "dnn", "mixup", 8.47),
        ("1", WRN_TIN, "dnn", "mixup", 2.4),
        ("1", WRN_TIN, "regmixup", "dnn", 3.75),
        ("1", WRN_TIN, "regmixup", "mixup", 6.15),
        ("2", WRN_100, "regmixup", "dnn", 1.67),
        ("2", WRN_100, "regmixup", "mixup", 0.65),
        ("2", WRN_100, "regmixup", "sngp", 4.05),
        ("3", WRN_100C, "regmixup", "dnn", 6.9),
        ("3", WRN_100C, "regmixup", ENSEMBLE, 3.86),
        ("3", WRN_100C, "regmixup", "mixup", 2.45),
        ("3", WRN_10C, "regmixup", "dnn", 6.53),
        ("3", WRN_10C, "regmixup", ENSEMBLE, 4.81),
        ("3", WRN_10C, "regmixup", "mixup", 1.45),
        ("3", "wrn28-10 cifar10 cifar10.2/test", "regmixup", "dnn", 3.26),
        ("3", "wrn28-10 cifar10 cifar10.2/test", "regmixup", "mixup", 1.5),
        ("3", "wrn28-10 cifar10 cifar10.2/test", "regmixup", ENSEMBLE, 2.46),
        ("4", IN, "regmixup", "dnn", 1.08),
        ("4", IN, "regmixup", "mixup", 0.53),
        ("4", IN, "regmixup", "augmix", 0.80),
        ("4", IN_A, "regmixup", "mixup", 2.67),
        ("4", IN_A, "regmixup", "dnn", 3.20),
        ("4", IN_V2, "regmixup", "mixup", 1.08),
        ("4", IN_V2, "regmixup", "dnn", 1.13),
        ("4", IN_V2, ENSEMBLE, "regmixup", 1.02),
        ("5", "wrn28-10 cifar10 cifar100/test", "sngp", "regmixup", 0.98),
        ("8", WRN_100C, ENSEMBLE, "regmixup", 4.43),
        ("8", WRN_100C, "mixup", "regmixup", 2.52),
        ("8", WRN_100C, "sngp", "regmixup", 2.47),
    ],
)  # fmt: skip
def test_a_stated_difference_is_that_of_its_cells_or_a_slip(table, name, better, worse, stated):
    cells = column(table, name)
    decimals = len(f"{stated}".partition(".")[2])
    derived = round(round(cells[better] - cells[worse], 2), decimals)
    slip = [
        sentence
        for sentence in texts()
        if f"{stated}" in sentence and f"{cells[better] - cells[worse]:.2f}" in sentence
    ]
    assert (derived == stated) != bool(slip)


def test_mixup_gains_about_5_under_corruption_and_regmixup_over_9_on_svhn():
    cells = column("1", WRN_10C)
    assert round(cells["mixup"] - cells["dnn"]) == 5
    for train_set in ("cifar10", "cifar100"):
        cells = column("5", f"wrn28-10 {train_set} svhn/test")
        assert cells["regmixup"] - cells["mixup"] > 9


def best(cells, *, lowest=False, without=()):
    left = {method: value for method, value in cells.items() if method not in without}
    return (min if lowest else max)(left, key=left.get)


def test_regmixup_is_the_most_accurate_single_model_on_all_test_sets():
    assert [best(cells, without=[ENSEMBLE]) for cells in columns("2")] == ["regmixup"] * 4


def test_methods_for_uncertainty_are_less_accurate_than_dnn_but_for_kfac_with_resnet50():
    above = [
        (method, value, cells["dnn"])
        for cells in columns("2")
        for method, value in cells.items()
        if method in ("sngp", "duq", "kfac-llla") and value > cells["dnn"]
    ]
    assert above == [("kfac-llla", 95.21, 95.19), ("kfac-llla", 79.41, 79.19)]
    assert any(all(f"{v} against {d}" in sentence for _, v, d in above) for sentence in texts())


def test_regmixup_is_best_under_shift_but_for_augmix_on_corruptions():
    """ "All the baselines", the ensemble included; on CIFAR-10.1 and 10.2 AugMix too."""
    assert [best(cells) for cells in columns("3")] == ["augmix", *["regmixup"] * 2, "augmix", *["regmixup"] * 4]
    assert {best(cells, without=["augmix"]) for cells in columns("3")} == {"regmixup"}


def test_on_imagenet_regmixup_is_the_best_single_model_and_beats_augmix_everywhere():
    assert {best(cells, without=[ENSEMBLE]) for cells in columns("4")} == {"regmixup"}
    assert [best(cells) for cells in columns("4")] == [
        *(ENSEMBLE, "regmixup", "regmixup", ENSEMBLE, ENSEMBLE, "regmixup")
    ]  # fmt: skip


def test_single_models_that_detect_better_than_regmixup():
    above = [
        {method for method, value in cells.items() if value > cells["regmixup"] and method != ENSEMBLE}
        for cells in columns("5")
    ]
    assert above == [{"sngp", "augmix"}, *[set()] * 11]
    assert any("AugMix does so too (89.78 against 89.63)" in sentence for sentence in texts())
    assert all(cells["regmixup"] > cells["mixup"] for cells in columns("5"))


def test_regmixup_beats_the_ensemble_in_most_columns_of_the_main_tables():
    wins = [cells["regmixup"] > cells[ENSEMBLE] for cells in columns("2", "3", "4", "5")]
    assert (sum(wins), len(wins)) == (17, 30)


def test_regmixup_is_best_calibrated_in_12_of_17_scenarios():
    winners = [best(cells, lowest=True) for cells in columns("6", "7", "8")]
    assert (winners.count("regmixup"), len(winners)) == (12, 17)


def test_where_another_method_is_better_calibrated_under_shift():
    """The text allows for C10-C alone."""
    others = {
        key.name: best(cells, lowest=True)
        for number in ("7", "8")
        for key, cells in zip(TABLES[number].sections[0].keys, columns(number), strict=True)
        if best(cells, lowest=True) != "regmixup" and key.dataset not in ("imagenet/val-test", "cifar10-c")
    }
    assert others == {f"timm/resnet50 imagenet imagenet-{name}/test": "augmix" for name in ("r", "sketch")}
    assert any("on ImageNet-R and -Sketch AugMix is (Table 7)" in sentence for sentence in texts())


@pytest.mark.parametrize(
    ("method", "other", "wins"),
    [
        ("regcutmix", "cutmix", 8),
        ("regmixup", "cutmix", 23),
        ("regmixup", "regcutmix", 23),
        ("regmixup+cutmix", "mixup+cutmix", 12),
    ],
)
def test_how_often_one_vicinal_distribution_beats_another(method, other, wins):
    """ "In most cases" holds for the first three; of the last the text says "inferior most of the times"."""
    found = [cells[method] > cells[other] for cells in columns("18", "19")]
    assert (sum(found), len(found)) == (wins, 24)
    if wins == 12:
        assert any("in 12 of the 24 columns" in sentence for sentence in texts())


def test_mixup_and_cutmix_by_a_coin_is_the_most_accurate_in_3_of_4():
    winners = [best(cells) for number in ("18", "19") for cells in list(columns(number))[:: 7 if number == "18" else 5]]
    assert winners.count("mixup+cutmix") == 3


def selected(*labels):
    return [cell.number for row, _, cell in TABLES["9"].cells() if row.labels == labels]


def test_the_selected_alphas_of_mixup_and_regmixup():
    assert set(selected("RegMixup", "η = 1, α")) == {10, 20}
    assert selected("Mixup", "α") == [0.3] * 4 + [0.1]
    assert any("0.3 four times and 0.1 once" in sentence for sentence in texts())


def test_duq_has_a_number_under_the_corruptions_of_cifar100_but_none_on_its_test_set():
    assert column("3", WRN_100C)["duq"] == 50.4
    assert "duq" not in column("2", WRN_100)
    assert any("Table 3 has 50.4" in sentence for sentence in texts())


def test_augmix_is_scaled_though_it_has_no_temperature():
    labels = {row.labels[0] for row, *_ in TABLES["9"].cells()}
    assert not any("aug" in label.lower() for label in labels)
    assert all("augmix" in next(columns(number)) for number in ("6", "7", "8", "15", "16", "17"))
    assert "DNN-SR" in labels
    assert "DNN-SRN" not in labels
