"""Cells and columns of the tables, and the sections that set ours beside the paper's and others'."""

from make_headline import answer, own_length, tables
from make_others import _beside
from make_scores import section
from make_tables import RECIPE, Column, cell, standard_columns
from scipy.stats import ttest_rel

from regmixup.report.aggregation import Aggregation
from regmixup.report.results import ONE_PRIOR_VARIANCE
from regmixup.report.significance import Design
from regmixup.types import Quantity, Row

from .given import measured


def test_an_interval_ends_where_the_metric_does():
    """Student's interval of 99, 99.5 and 96 % reaches beyond 100."""
    column = Column("SVHN AUROC", Quantity("svhn/test", "auroc"))
    rows = measured({"dnn": [0.99, 0.995, 0.96]})
    assert cell(column, rows).endswith(", 100.00]")
    assert cell(column, [Row(value=0.01), Row(value=0.04)]).startswith("2.50 [0.00, ")


def test_failures_are_ranked_by_msp_and_detection_by_the_methods_own_score():
    columns = {column.title: column for column in standard_columns(RECIPE)}
    rows = [
        *measured({"regmixup": [0.1]}, "cifar10/test", "augrc", "max_probability"),
        *measured({"regmixup": [0.2]}, "cifar10/test", "augrc", "dempster_shafer"),
        *measured({"regmixup": [0.7], "mixup": [0.6]}, score="max_probability"),
        *measured({"regmixup": [0.8], "mixup": [0.5]}),
        *measured({"regmixup": [0.3], "mixup": [0.4]}, score="entropy"),
    ]
    aggregation = Aggregation(rows)
    assert [row.value for row in columns["AUGRC by MSP"].rows(aggregation, "regmixup")] == [0.1]
    assert [row.value for row in columns["svhn AUROC"].rows(aggregation, "regmixup")] == [0.8]
    assert [row.value for row in columns["svhn AUROC"].rows(aggregation, "mixup")] == [0.4]


def test_ours_beside_others_has_a_deviation_where_theirs_has():
    """Over seeds, of the mean over both sets: 85, 87 and 89 %."""
    near = [("cifar100/test", [0.84, 0.86, 0.88]), ("tiny-imagenet/val", [0.86, 0.88, 0.90])]
    aggregation = Aggregation([row for name, own in near for row in measured({"dnn": own}, name)])
    columns = [Column("", Quantity(name, "auroc")) for name, _ in near]
    assert _beside({"method": "dnn", "near": "88.03 ± 0.25"}, "near", columns, aggregation).endswith("/ 87.00 ± 2.00")
    assert _beside({"method": "dnn", "near": "88.03"}, "near", columns, aggregation) == "88.03 / 87.00"
    assert _beside({"method": "mixup", "near": "88.03 ± 0.25"}, "near", columns, aggregation) == "88.03 ± 0.25 / –"


def test_calibration_has_columns_of_t_where_it_was_chosen_and_the_papers_numbers_beside():
    rows = measured({"dnn": [0.02, 0.04]}, "cifar10/test", "ece", "")
    heads, _, own, *rest = headline_table(rows)
    assert heads[3:-1] == ["ECE", "AdaECE"]
    assert own[3].startswith("3.00 [")
    assert ["dnn, the paper's ResNet-50", "350", "5", "–", "3.02", ""] in rest
    chosen = {"posthoc": "temperature"}
    rows += measured({"dnn": [1.4, 1.4]}, "cifar10/test", "temperature", "", **chosen)
    rows += measured({"dnn": [0.01, 0.03], "half-regmixup": [0.02]}, "cifar10/test", "ece", "", **chosen)
    heads, _, own, *rest = headline_table(rows)
    assert heads[3:-1] == ["ECE", "AdaECE", "T", "ECE with T"]
    assert own[5] == "1.400", "chosen, not estimated"
    assert own[6].startswith("2.00 [")
    assert ["dnn, the paper's ResNet-50", "350", "5", "–", "3.02", "1.51", "1.38", ""] in rest
    assert [line[0] for line in rest].count("half-regmixup") == 1


def headline_table(rows):
    """Return the cells of the table about calibration."""
    text = tables({own_length(RECIPE): Aggregation(rows)}, RECIPE).rpartition("\n\n")[2]
    return [[one.strip() for one in line.strip("|").split("|")] for line in text.splitlines()]


def test_the_standard_table_tells_what_stands_after_the_correction():
    """Mixup's change is sure, RegMixup's is by itself but not as one of three, and bimodal's is chance."""
    plain = [0.85, 0.86, 0.84, 0.855]
    changes = {
        "mixup": (0.02, 0.021, 0.019, 0.02),
        "regmixup": (-0.004, -0.012, -0.007, -0.016),
        "bimodal": (0.01, -0.01, 0.004, -0.004),
    }
    values = {label: [a + b for a, b in zip(plain, own, strict=True)] for label, own in changes.items()}
    assert 0.05 / 2 < ttest_rel(values["regmixup"], plain).pvalue < 0.05
    given = {"dnn": plain, **values, "cutmix": [0.9]}
    rows = [row for metric in ("accuracy", "ece") for row in measured(given, "cifar10/test", metric, "")]
    text = answer({own_length(RECIPE): Aggregation(rows)})
    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        "- **mixup** (4 seeds): better in accuracy +2.00; worse in ECE +2.00.",
        "- **regmixup** (4 seeds): before the correction only accuracy −0.98, ECE −0.98.",
        "- **bimodal** (4 seeds): nothing is told apart.",
        "- **mixup** (4 seeds): better in accuracy +2.98; worse in ECE +2.98.",  # than RegMixup
        "- **bimodal** (4 seeds): better in accuracy +0.98; worse in ECE +0.98.",
    ]


def test_a_difference_between_scores_is_also_told_by_one_score():
    """CutMix is told by entropy: two points by its own score are one, and on CIFAR-100 it is told, too."""
    plain, recipe = [0.85, 0.86, 0.84], "cifar100-resnet18"
    shift = {"dempster_shafer": 0.0, "entropy": 0.01}
    rows = measured({"dnn": plain, "cutmix": plain}, "cifar100/test", "accuracy", "")
    for score, by in shift.items():
        values = {"dnn": [one + by for one in plain], "cutmix": [one + 0.02 for one in plain]}
        values["cutmix"][0] += 1e-4
        rows += measured(values, score=score)
    text = tables({own_length(recipe): Aggregation(rows)}, recipe)
    told = "- **cutmix** (3 seeds): better in SVHN AUROC +2.00; by entropy for both SVHN AUROC +1.00."
    assert text.partition("as above:")[2].splitlines()[2] == told


def test_a_method_whose_prior_variance_is_of_one_companion_is_not_compared():
    """As in a report, and it has no part in the correction for the others."""
    plain = [0.85, 0.86, 0.84]
    values = {"dnn": plain, "mixup": [one + 0.01 for one in plain], "kfac-llla": [one + 0.02 for one in plain]}
    design = Design(untested={"kfac-llla": ONE_PRIOR_VARIANCE})
    text = answer({own_length(RECIPE): Aggregation(measured(values, "cifar10/test", "accuracy", ""), design)})
    assert "- **mixup** (3 seeds): better in accuracy +1.00." in text
    assert "**kfac-llla**" not in text
    assert "kfac-llla is not compared: its prior variance comes from one companion" in text


def test_regmixup_on_cifar100_is_also_compared_by_other_scores():
    """Two points lost by Dempster-Shafer, one gained by entropy, also over half-RegMixup; MSP has one seed."""
    plain, recipe = [0.85, 0.86, 0.84], "cifar100-resnet18"
    rows = measured({"dnn": plain[:1], "regmixup": plain[:1]}, score="max_probability")
    for score, by in {"dempster_shafer": -0.02, "entropy": 0.01}.items():
        for dataset in ("cifar10/test", "svhn/test", "tiny-imagenet/val"):
            values = {"dnn": plain, "regmixup": [one + by for one in plain], "half-regmixup": plain}
            rows += measured(values if score == "entropy" else values | {"half-regmixup": []}, dataset, score=score)
    text = tables({own_length(recipe): Aggregation(rows)}, recipe).partition("both by one score")[2]
    lines = [
        line
        for line in text.splitlines()
        if any(f"| {name} |" in line for name in ("Dempster-Shafer", "MSP", "entropy"))
    ]
    losses, gains = " | ".join(["−2.00 [−2.00, −2.00]"] * 3), " | ".join(["+1.00 [+1.00, +1.00]"] * 3)
    by = (("dnn", "Dempster-Shafer", losses), ("dnn", "entropy", gains), ("half-regmixup", "entropy", gains))
    assert lines == [f"| {' | '.join(one)} |" for one in by]


def test_what_the_score_changes_is_also_told_for_cifar100():
    """Entropy finds a point more of the failures on CIFAR-10, and two less on CIFAR-100, whose rows chose nothing."""
    plain, found = [0.85, 0.86, 0.84], {}
    for recipe, test, by in ((RECIPE, "cifar10/test", 0.01), ("cifar100-resnet18", "cifar100/test", -0.02)):
        shift = {"dempster_shafer": 0.0, "entropy": by}
        found[own_length(recipe)] = [
            row
            for score, own in shift.items()
            for row in measured({"dnn": [one + own for one in plain]}, test, "failure_auroc", score)
        ]
    one, both = (
        section({training: Aggregation(rows) for training, rows in some})
        for some in (list(found.items())[:1], found.items())
    )
    assert one.startswith("Entropy instead of Dempster-Shafer changes failure AUROC by +1.00 to +1.00 (up in 1 and ")
    assert "CIFAR-100" not in one
    assert both.startswith(one)
    assert "changes failure AUROC by −2.00 to −2.00 (up in 0 and down in 1 of 1 lines).\n" in both.removeprefix(one)
