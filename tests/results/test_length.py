"""What is said about training length follows from the intervals over seeds."""

from dataclasses import replace

import pytest
from make_length import answer
from scipy.stats import ttest_rel

from regmixup.report.aggregation import Aggregation
from regmixup.types import Quantity

from .given import measured, trained

PLAIN = [0.90, 0.91, 0.92]


def detection(epochs, plain, mixed, dataset="svhn/test", by_msp=None):
    """Both methods at one length. by_msp: RegMixup's values by that score; plain training has the same by both."""
    rows = measured({"dnn": plain, "regmixup": mixed}, dataset)
    if by_msp:
        rows += measured({"dnn": plain, "regmixup": by_msp}, dataset, score="max_probability")
    return trained(epochs), Aggregation(rows)


@pytest.mark.parametrize(
    ("short", "long", "said"),
    [
        ([0.80, 0.81, 0.825], [0.93, 0.941, 0.95], "RegMixup is ahead at 200 epochs"),
        (
            [0.80, 0.81, 0.825],
            [0.90, 0.911, 0.919],
            "of 25 epochs shrinks, and is not distinguishable from none at 200",
        ),
        ([0.80, 0.81, 0.825], [0.87, 0.881, 0.89], "of 25 epochs shrinks, and is still there at 200"),
        ([0.87, 0.88, 0.89], [0.87, 0.881, 0.889], "RegMixup is behind at 200 epochs"),
        ([0.80, 0.89, 0.86], [0.85, 0.97, 0.88], "**Not decided.**"),
        ([0.80], [0.95], "**Not decided.**"),
        ([0.88, 0.93, 0.90], [0.895, 0.9451, 0.915], "**Not decided.**"),  # it grows, from no deficit that is shown
    ],
    ids=["ahead", "closed", "shrinks", "behind", "spread", "one seed", "no deficit"],
)
def test_the_answer_to_the_open_question_follows_from_the_intervals(short, long, said):
    found = dict([detection(25, PLAIN, short), detection(200, PLAIN, long)])
    told = answer(found, [25, 50, 200])
    assert said in told.partition("Both methods")[0]
    assert "At 50 epochs one of the two is missing." in told


def test_the_answer_says_what_the_score_has_to_do_with_it():
    """A deficit by Dempster-Shafer that MSP does not see is one of the score, not of the network."""
    short = detection(25, PLAIN, [0.80, 0.81, 0.825], by_msp=[0.90, 0.911, 0.919])
    long = detection(200, PLAIN, [0.90, 0.911, 0.919], by_msp=[0.91, 0.911, 0.919])
    told = answer(dict([short, long]), [25, 200])
    assert "**By Dempster-Shafer, the paper's score: SVHN: the deficit of 25 epochs shrinks" in told
    assert "**By MSP: no set is decided at 200 epochs.**" in told
    assert "At 25 epochs: SVHN −9.83 by Dempster-Shafer, +0.00 by MSP." in told
    lines = [line for line in told.splitlines() if line.startswith("| SVHN AUROC")]
    assert [line.split(" | ")[0] for line in lines] == ["| SVHN AUROC", "| SVHN AUROC by MSP"]
    assert "**−9.83 [" in lines[0]
    assert "| +0.00 [" in lines[1]


def test_the_answer_says_what_replaced_trainings_change():
    short, long = detection(25, PLAIN, [0.80, 0.81, 0.825]), detection(200, PLAIN, [0.90, 0.911, 0.919])
    further = detection(200, [*PLAIN, 0.911, 0.909], [0.88, 0.881, 0.879, 0.882])  # more trainings, and a deficit
    told = {name: answer(dict([short, long]), [25, 200], dict([short, own])) for name, own in
            (("same", long), ("more", further))}  # fmt: skip
    assert "†" not in told["same"].partition("| SVHN")[2]
    assert "trainings that were replaced](" not in told["same"]
    assert "it is otherwise at 200 epochs: SVHN −2.95 [" in told["more"]
    assert [line.count("†") for line in told["more"].splitlines() if line.startswith("| SVHN AUROC")] == [1]


def test_refreshed_statistics_are_compared_on_the_same_networks():
    """Three of five networks were measured both ways; the other two must not count."""
    training, found = detection(100, [*PLAIN, 0.99, 0.99], [0.90, 0.911, 0.919, 0.92, 0.93])
    plain, mixed = (found.rows(Quantity("svhn/test", "auroc"), label) for label in ("dnn", "regmixup"))
    again = [replace(row, method="dnn(bn=refreshed)", value=row.value - 0.02) for row in plain[:3]]
    told = answer({training: Aggregation([*plain, *mixed, *again])}, [100])
    assert "measured both ways): plain training SVHN −2.00." in told


@pytest.mark.parametrize("order", [(30, 100), (100, 30)])
def test_seeds_differ_as_they_do_after_the_longest_training_with_the_most(order):
    mixed = {30: [0.80, 0.81, 0.82], 100: [0.80, 0.85, 0.90]}
    found = dict(detection(epochs, PLAIN, mixed[epochs]) for epochs in order)
    assert "deviation of 5.00 on SVHN, over the 3 seeds of 100 epochs" in answer(found, [30, 100])


def test_cells_are_also_counted_after_a_correction_for_their_number():
    """Alone either of two cells with p between 0.025 and 0.05 would stay; Holm asks 0.025 of the smaller one."""
    mixed = {25: [0.86, 0.85, 0.885], 200: [0.95, 0.935, 0.97]}
    found = dict(detection(epochs, PLAIN, own) for epochs, own in mixed.items())
    chances = [ttest_rel(own, PLAIN).pvalue for own in mixed.values()]
    assert 0.025 < min(chances) < max(chances) < 0.05
    assert "of their kind: by Dempster-Shafer 0 of 2." in answer(found, [25, 200])
    found = dict(detection(epochs, PLAIN, [0.80, 0.81, 0.8201]) for epochs in mixed)
    assert "Dempster-Shafer 2 of 2 (SVHN at 25, SVHN at 200 epochs)." in answer(found, [25, 200])


@pytest.mark.parametrize(("last", "said"), [([0.90, 0.911, 0.919], True), ([0.93, 0.941, 0.889], False)])
def test_the_answer_says_where_the_papers_gain_is_outside_our_interval(last, said):
    """On Tiny-ImageNet the paper gains 2.22 and 3.75."""
    both = ((25, [0.80, 0.81, 0.825]), (200, last))
    found = dict(detection(epochs, PLAIN, own, "tiny-imagenet/val") for epochs, own in both)
    assert ("The paper's gains on Tiny-ImageNet" in answer(found, [25, 200])) == said
