"""The first lines of the page say what the rows below them do."""

from make_headline import own_length
from make_summary import summary
from make_tables import RECIPE

from regmixup.report.aggregation import Aggregation
from regmixup.report.claims import Training

from .given import measured


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


def test_nothing_is_said_of_nothing():
    assert summary({}) == ""
