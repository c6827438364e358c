"""The verdict: its intervals, how often it recommends what makes no difference, and that it finds what does."""

import math

import numpy as np
import pytest
from scipy import stats

from regmixup.advice.verdict import CANDIDATES, METRICS, PLAIN, judge, to_markdown
from regmixup.report.significance import resampled_difference

NAMES = list(CANDIDATES)
OTHERS = [name for name in NAMES if name != PLAIN]
SIMULATIONS = 500


def as_values(table, metric="accuracy"):
    """(candidates, folds) -> the values of one metric."""
    return {n: {f: {metric: float(v)} for f, v in enumerate(row, 1)} for n, row in zip(NAMES, table, strict=True)}


def correlated(rng, folds, effect=0.0, noise=0.02):
    """Values whose differences have the correlation 1 / folds that Nadeau and Bengio assume. effect: of the second."""
    share = 1 / folds
    shared = rng.normal(0, math.sqrt(share) * noise, (len(NAMES), 1))
    table = 0.7 + shared + rng.normal(0, math.sqrt(1 - share) * noise, (len(NAMES), folds))
    table[1] += effect
    return table


def test_the_interval_is_the_corrected_t_at_a_level_for_all_candidates():
    table = correlated(np.random.default_rng(0), 5)
    found = judge(as_values(table, "ood"), goal="ood", planned=5, images=400).effects[0]
    d = table[1] - table[0]
    scale = math.sqrt(d.var(ddof=1) * (1 / 5 + 1 / 4))
    low, high = stats.t.interval(1 - 0.05 / 5, 4, loc=d.mean(), scale=scale)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.candidate == OTHERS[0]
    assert found.difference == pytest.approx(d.mean())


@pytest.mark.parametrize(("folds", "metric"), [(5, "accuracy"), (5, "nll"), (10, "accuracy")])
def test_without_a_difference_it_recommends_something_in_at_most_one_of_twenty_cases(folds, metric):
    rng = np.random.default_rng(folds)
    wrong = naive = 0
    usual = stats.t.isf(0.05, folds - 1)
    for _ in range(SIMULATIONS):
        table = correlated(rng, folds)
        wrong += judge(as_values(table, metric), goal=metric, planned=folds, images=4000).decision != "plain"
        d = table[1:] - table[0]
        naive += (d.mean(axis=1) / d.std(axis=1, ddof=1) * math.sqrt(folds)).max() > usual
    assert wrong <= 0.05 * SIMULATIONS
    assert naive > 0.2 * SIMULATIONS  # what the usual t-test of each candidate does


def test_without_a_difference_between_classifiers_that_are_really_cross_validated():
    """Candidates are the nearest class mean in random halves of 12 features, of two classes with 60 samples in all."""
    rng = np.random.default_rng(2)
    wrong = 0
    labels = np.arange(60) % 2
    for _ in range(SIMULATIONS):
        x = rng.normal(size=(60, 12)) + 0.4 * labels[:, None]
        kept = [rng.permutation(12)[:6] for _ in NAMES]
        table = np.empty((len(NAMES), 5))
        for fold in range(5):
            test = np.arange(60) // 2 % 5 == fold
            means = np.stack([x[~test & (labels == c)].mean(axis=0) for c in (0, 1)])
            squares = (x[test, None] - means) ** 2
            for i, features in enumerate(kept):
                table[i, fold] = (squares[..., features].sum(-1).argmin(1) == labels[test]).mean()
        wrong += judge(as_values(table), goal="accuracy", planned=5, images=60).decision == "use"
    assert wrong <= 0.05 * SIMULATIONS


def test_an_effect_is_found_and_its_candidate_named():
    rng = np.random.default_rng(3)
    found = [
        judge(as_values(correlated(rng, 10, effect=0.08)), goal="accuracy", planned=10, images=4000)
        for _ in range(SIMULATIONS)
    ]
    right = [v for v in found if v.choice == OTHERS[0]]
    assert len(right) > 0.9 * SIMULATIONS
    covered = sum(v.effects[0].low <= 0.08 <= v.effects[0].high for v in found)
    assert covered > 0.95 * SIMULATIONS
    assert right[0].sentences[0].startswith("use RegMixup (alpha 10, eta 1): accuracy +")


def test_the_same_small_difference_in_every_fold_is_no_proof():
    """One image of twelve more in each of five folds has no spread at all: t is infinite, McNemar's z is 2.2."""
    table = np.full((len(NAMES), 5), 6 / 12)
    table[1] += 1 / 12
    assert resampled_difference(table[1], table[0], test_share=1 / 4).squared_error < 1e-30
    verdict = judge(as_values(table), goal="accuracy", planned=5, images=60)
    assert verdict.decision == "plain"
    assert verdict.effects[1].low < 0 == verdict.effects[1].difference < verdict.effects[1].high
    assert judge(as_values(table), goal="accuracy", planned=5, images=6000).decision == "use"


@pytest.mark.parametrize(("folds", "planned"), [(4, 4), (4, 5), (7, 10), (0, 5)])
def test_it_is_undecided_before_the_plan_is_done_and_with_fewer_than_five_folds(folds, planned):
    table = correlated(np.random.default_rng(0), max(folds, 2), effect=0.5)[:, :folds]
    verdict = judge(as_values(table), goal="accuracy", planned=planned, images=4000)
    assert verdict.decision == "undecided"
    assert verdict.folds == folds
    assert verdict.sentences[0].startswith("undecided")


def test_it_is_undecided_where_nothing_was_learned():
    table = correlated(np.random.default_rng(0), 5, effect=0.5)
    assert judge(as_values(table), goal="accuracy", planned=5, images=400, chance=0.4).decision == "use"
    verdict = judge(as_values(table), goal="accuracy", planned=5, images=400, chance=0.6)
    assert verdict.decision == "undecided"
    assert "naming the largest class on 60.0 %: such trainings are too short to compare" in verdict.sentences[0]


def test_only_folds_of_all_candidates_count():
    values = as_values(correlated(np.random.default_rng(0), 5, effect=0.5))
    del values["ema"][3]
    assert (verdict := judge(values, goal="accuracy", planned=5, images=400)).decision == "undecided"
    assert verdict.folds == 4


def test_it_says_when_not_to_use_regmixup():
    table = correlated(np.random.default_rng(1), 10, noise=0.005)
    table[1:4] -= 0.1
    verdict = judge(as_values(table), goal="accuracy", planned=10, images=4000)
    assert verdict.decision == "plain"
    assert verdict.sentences[0] == "train plainly: no candidate is shown to be better in accuracy"
    assert "do not use RegMixup here: at equal compute every setting of it is worse, at best" in verdict.sentences[1]


def test_other_metrics_are_told_and_decide_nothing():
    rng = np.random.default_rng(4)
    values = as_values(correlated(rng, 10, noise=0.01))
    better, worse = (as_values(correlated(rng, 10, effect=e, noise=0.005), "x") for e in (0.2, -0.2))
    for name in NAMES:
        for fold in values[name]:
            values[name][fold] |= {"ood": better[name][fold]["x"], "ece": worse[name][fold]["x"]}
    verdict = judge(values, goal="accuracy", planned=10, images=4000)
    assert verdict.decision == "plain"
    told = "\n".join(verdict.sentences)
    assert "RegMixup (alpha 10, eta 1) is better in AUROC of left-out classes +" in told
    assert "which was not the goal" in told
    assert "is better in ECE -" in told  # a smaller one is better
    chosen = judge(values, goal="ood", planned=10, images=4000)
    assert chosen.choice == "regmixup-10"
    assert "ECE -" in chosen.sentences[0]
    assert "no evidence for or against it in accuracy" in chosen.sentences[1]


def test_infinite_values_are_no_evidence():
    table = correlated(np.random.default_rng(0), 5)
    table[1, 0] = math.inf
    with np.errstate(invalid="ignore"):
        verdict = judge(as_values(table, "nll"), goal="nll", planned=5, images=400)
    assert verdict.effects[0].evidence == "none"


def test_the_page_has_a_row_for_each_candidate():
    verdict = judge(as_values(correlated(np.random.default_rng(0), 5)), goal="accuracy", planned=5, images=400)
    page = to_markdown(verdict, "\n".join(verdict.sentences), "the plan")
    assert page.count("\n| ") == len(NAMES) + 1
    assert "accuracy (the goal)" in page
    assert METRICS["ood"].label not in page


@pytest.mark.parametrize(
    ("change", "message"),
    [({"goal": "acuracy"}, "did you mean 'accuracy'"), ({"values": {PLAIN: {}}}, "at least one other candidate")],
)
def test_wrong_input_is_named(change, message):
    arguments = {
        "values": as_values(np.zeros((len(NAMES), 5))),
        "goal": "accuracy",
        "planned": 5,
        "images": 9,
        **change,
    }
    with pytest.raises(ValueError, match=message):
        judge(arguments.pop("values"), **arguments)
