"""The first lines of the page say what the rows below them do."""

from claims import Training
from make_headline import own_length
from make_summary import summary
from make_tables import RECIPE

from regmixup.report.aggregation import Aggregation

from .given import measured, trained


def given(accuracy, ece):
    return [
        *measured(accuracy, "cifar10/test", "accuracy", ""),
        *measured(ece, "cifar10/test", "ece", ""),
    ]


def test_differences_are_told_by_length_and_the_best_of_several_seeds_is_named():
    """RegMixup gains at both lengths, its ECE falls at one alone; a single seed is never the best."""
    plain = [0.95, 0.952, 0.951]
    long = given(
        {"dnn": plain, "regmixup": [v + 0.01 for v in plain], "mixup": [v + 0.02 for v in plain], "cutmix": [0.99]},
        {"dnn": [0.03, 0.031, 0.029], "regmixup": [0.01, 0.011, 0.009], "mixup": [0.07, 0.08, 0.06]},
    )
    short = given(
        {"dnn": plain, "regmixup": [v + 0.03 for v in plain]},
        {"dnn": [0.03, 0.01, 0.02], "regmixup": [0.01, 0.03, 0.02]},
    )
    found = {
        own_length(RECIPE): Aggregation(long),
        Training(RECIPE, (), 25, "bfloat16"): Aggregation(short),
    }
    against, best = summary(found).splitlines()
    assert "25 to 100 epochs" in against
    assert "Accuracy +1.0 to +3.0, above 0 at every length; ECE −2.0 to 0, below 0 at 100." in against
    assert "Of the methods with 3 or more seeds at 100 epochs" in best
    assert "the best means: accuracy mixup (97.1); ECE regmixup (1.0)." in best


def test_a_deficit_is_told_by_both_scores_and_with_clean_statistics_and_cifar100_has_a_line_of_its_own():
    """Ten points by Dempster-Shafer are one by MSP; clean statistics mend all but a point of five."""
    plain, fresh = [0.90, 0.91, 0.92], "regmixup(passes=separate-clean)"
    at = {
        25: {"dnn": plain, "regmixup": [v - 0.1 for v in plain]},
        50: {"dnn": plain, "regmixup": [v - 0.05 for v in plain], fresh: [v - 0.01 for v in plain]},
        100: {"dnn": plain, "regmixup": plain, fresh: [v + 0.01 for v in plain]},
        200: {"dnn": plain, "regmixup": plain, fresh: [0.99]},  # one seed has no interval
    }
    found = {trained(epochs): measured(own, "cifar100/test") for epochs, own in at.items()}
    found[trained(25)] += measured(
        {"dnn": plain, "regmixup": [v - 0.01 for v in plain]}, "cifar100/test", score="max_probability"
    )
    found[own_length("cifar100-resnet18")] = further = measured(
        {"dnn": plain, "mixup": plain[::-1], "regmixup": [v + 0.02 for v in plain]}, "cifar100/test", "accuracy", ""
    )
    further += measured({"dnn": plain, "mixup": plain, "regmixup": [v - 0.01 for v in plain]}, score="entropy")
    further += measured({"dnn": plain, "mixup": plain, "regmixup": plain[::-1]})  # by Dempster-Shafer, not Mixup's
    _, other, mixup, why = summary({training: Aggregation(rows) for training, rows in found.items()}).splitlines()
    assert (
        "CIFAR-100 AUROC: after 25 epochs RegMixup is −10.0 from plain training by Dempster-Shafer, −1.0 by MSP;" in why
    )
    names = ("to RegMixup in one pass", "to plain training")
    assert (
        "clean images the difference is "
        f"after 50 epochs +4.00 [+4.00, +4.00] {names[0]} and −1.00 [−1.00, −1.00] {names[1]}, "
        f"after 100 epochs +1.00 [+1.00, +1.00] {names[0]} and +1.00 [+1.00, +1.00] {names[1]}. ["
    ) in why
    where = "ResNet-18 on CIFAR-100, 200 epochs"
    told = "above 0: accuracy +2.0; below 0: SVHN AUROC by entropy −1.0; undecided: SVHN AUROC 0."
    assert other == f"- **RegMixup against plain training**, {where}: {told}"
    told = "below 0: SVHN AUROC by entropy −1.0; undecided: accuracy +2.0."
    assert mixup == f"- **RegMixup against Mixup**, {where}: {told}"


def test_nothing_is_said_of_nothing():
    assert summary({}) == ""
