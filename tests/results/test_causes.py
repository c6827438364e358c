"""What is said about causes, and about the statistics of batch norm, follows from differences paired by seed."""

import re
from dataclasses import replace

import pytest
from make_causes import FRESH, QUESTIONS, length_table, questions, section

from regmixup.report.aggregation import Aggregation
from regmixup.report.significance import difference
from regmixup.study.plan import read_header, studies

from .given import measured, trained

BASE = [0.85, 0.86, 0.84]


def causes(values, by_msp=None, replaced=()):
    rows = [*measured(values), *measured(by_msp or {}, score="max_probability")]
    return section({trained(50): Aggregation(rows)}, {trained(50): Aggregation([*rows, *replaced])})


def first_table(text):
    """Return the lines of the table of all columns by their labels."""
    lines = text.partition("AUROC by MSP |")[0].splitlines()
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}


def test_causes_are_differences_from_the_base_paired_by_seed():
    """Seeds differ by a point and the sum adds one to each of them: pairs see it to a hundredth, eta adds nothing."""
    summed, weighted = [0.8601, 0.87, 0.8499], [0.861, 0.850, 0.8405]
    text = causes(
        {"regmixup": BASE, "regmixup(scale=sum)": summed, "regmixup(eta=2)": weighted, "dnn": [0.88, 0.89, 0.87]}
    )
    lines = first_table(text)
    found = difference({0: 0.01, 1: 0.0, 2: 0.0005}, {0: -0.001, 1: 0.01, 2: 0.0}).interval()
    assert found[0] < 0 < found[1]
    assert "| **+1.00 [+0.98, +1.02]** |" in lines["regmixup(scale=sum)"]
    low, high = (f"{100 * bound:+.2f}".replace("-", "−") for bound in found)
    assert f"| +0.05 [{low}, {high}] |" in lines["regmixup(eta=2)"]
    assert "| **+3.00 [+3.00, +3.00]** |" in lines["dnn"]
    assert "| 85.00 |" in lines["regmixup, the base"]
    assert lines["regmixup(passes=separate)"].endswith("| – | missing |")
    assert "`regmixup(scale=sum)0` `regmixup(scale=sum)1`" in lines["regmixup(scale=sum)"]
    assert "**SVHN AUROC:** the sum of both terms +1.00 (3 seeds); none is shown to be ahead of plain training." in text


def test_a_cell_is_marked_where_replaced_trainings_decide_it_otherwise():
    """A pair more agrees with the sum, and one far off takes away what eta does; alone no cell has a mark."""
    values = {"regmixup": BASE, "regmixup(scale=sum)": [0.95, 0.961, 0.939], "regmixup(eta=2)": [0.80, 0.811, 0.789]}
    replaced = [
        replace(row, seed=-1, run="earlier")
        for row in measured({"regmixup": [0.851], "regmixup(scale=sum)": [0.951], "regmixup(eta=2)": [0.99]})
    ]
    assert "†" not in causes(values).partition("| runs |")[2]
    lines = first_table(causes(values, replaced=replaced))
    assert "]** † |" in lines["regmixup(eta=2)"]
    assert [label for label, line in lines.items() if "†" in line] == ["regmixup(eta=2)"]


def test_a_choice_explains_the_gain_only_if_it_is_ahead_of_plain_training():
    ahead = [value + 0.03 for value in BASE]
    text = causes({"regmixup": BASE, "regmixup(alpha=1)": ahead, "dnn": [0.862, 0.87, 0.851]})
    assert "**SVHN AUROC:** alpha 1 +3.00 (3 seeds); ahead of plain training: alpha 1." in text


def test_causes_are_asked_by_msp_as_well():
    """Separate passes lose ten points by Dempster-Shafer and none by MSP: both stand there, in words and in tables."""
    lost = {"regmixup": BASE, "regmixup(passes=separate)": [0.75, 0.761, 0.74]}
    text = causes(lost, {"regmixup": BASE, "regmixup(passes=separate)": [0.851, 0.859, 0.8405]})
    assert "- **SVHN AUROC:** separate forward passes −9.97 (3 seeds);" in text
    assert "; by MSP: no effect is shown." in text
    (line,) = [line for line in text.partition("SVHN AUROC by MSP")[2].splitlines() if "passes=separate" in line]
    assert "| +0.02 [" in line


def test_many_choices_without_effect_decide_nothing_although_one_interval_excludes_zero():
    """The correction counts the lines: +0.2 with p = 0.03 by itself is not decided beside six others."""
    others = ("passes=separate", "scale=sum", "lam=sample", "alpha=10", "eta=0.5", "eta=2")
    values = {f"regmixup({name})": [0.86, 0.85, 0.84] for name in others}
    text = causes({"regmixup": BASE, "regmixup(alpha=1)": [0.852, 0.8625, 0.8415], **values})
    assert "| +0.20 [+0.08, +0.32] |" in first_table(text)["regmixup(alpha=1)"]
    assert (
        "none of 7 choices has an effect that the seeds can tell from none; before the correction only: alpha 1" in text
    )


@pytest.mark.parametrize("values", [{}, {"regmixup": [0.85], "regmixup(eta=2)": [0.95]}])
def test_causes_need_two_seeds(values):
    text = causes(values)
    assert "**Not decided**" in text
    assert "**+" not in text
    assert text.count("missing") == (9 if not values else 7) + 9  # by MSP nothing is there
    assert ("| (+10.00) |" in text) == bool(values)


def test_clean_statistics_are_judged_by_the_bounds_that_the_study_states():
    """+3 points over one pass, level with plain training, and a gain of one point where the paper's smallest is 2.2."""

    def judged(others, own):
        sets = (
            ({"regmixup": [0.831, 0.835, 0.829], "dnn": others}, "cifar100/test"),
            ({"dnn": others}, "tiny-imagenet/val"),
        )
        found = {}
        for epochs, (known, dataset), values in zip((50, 200), sets, own, strict=True):
            new = [replace(row, seed=row.seed + 3) for row in measured({FRESH: values}, dataset)]
            found[trained(epochs)] = Aggregation([*measured(known, dataset), *new])
        text = questions(found)
        table, _, answer = text.partition("\n\n")
        told = [re.findall(r"(?:above|below) \S+: (\S+)", line) for line in table.splitlines()[2:]]
        assert ("), 1 of 3 seeds |" in table) == (len(own[1]) == 1)
        assert table.count(" seeds |") == (len(own[1]) == 1)
        return told, re.findall(r"\*\*(.+?)\*\*", answer)

    plain = [0.861, 0.865, 0.859]
    repeats = [0.862, 0.866, 0.860]
    for own, told, answers in (
        ((repeats, [0.872, 0.875, 0.869]), ["yes no", "yes", "yes yes"], ["repeats", "a gain over plain training"]),
        ((repeats, [0.861, 0.864, 0.858]), ["yes no", "yes", "no yes"], ["repeats", "no gain as large as the paper's"]),
        (
            ([0.832, 0.836, 0.830], [0.86, 0.88, 0.90]),
            ["no yes", "no", "no no"],
            ["explain less than half", "not decided"],
        ),
        (([0.80, 0.86, 0.92], []), ["no no", "no", "– –"], ["not decided", "not answered"]),
        (([], [0.9]), ["– –", "–", "– –"], ["not answered"] * 2),
    ):
        assert judged(plain, own) == ([one.split() for one in told], answers)
    stated = read_header(studies()["clean-statistics"]).expected
    for low, high in (bounds[3:] for bounds in QUESTIONS):
        assert all(f"{bound:+.1f}" in stated for bound in (low, high) if bound)


def test_clean_statistics_stand_beside_both_references_at_every_length_that_was_run():
    """Seeds differ by a point: pairs see +2 and -1 to a hundredth; a single seed has no interval, and 50 is not run."""
    rows = {100: {"regmixup": BASE, "dnn": [one + 0.03 for one in BASE], FRESH: [one + 0.02 for one in BASE]}}
    rows |= {200: rows[100] | {FRESH: [0.88]}, 50: {"regmixup": BASE, "dnn": BASE}}
    found = {epochs: Aggregation(measured(own, "cifar10/test", "accuracy", "")) for epochs, own in rows.items()}
    text = length_table({trained(epochs): own for epochs, own in found.items()})
    assert [line.split(" | ")[:4] for line in text.splitlines() if " epochs | " in line] == [
        ["| 100 epochs", "RegMixup in one pass", "3, 3", "+2.00 [+2.00, +2.00]"],
        ["| 100 epochs", "plain training", "3, 3", "−1.00 [−1.00, −1.00]"],
        ["| 200 epochs", "RegMixup in one pass", "1, 3", "(+3.00)"],
        ["| 200 epochs", "plain training", "1, 3", "(+0.00)"],
    ]
    assert not length_table({trained(50): found[50]})
