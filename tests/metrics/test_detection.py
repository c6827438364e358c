"""AUROC, average precision and FPR at TPR against loops over pairs and thresholds, and against scikit-learn."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc_curve

from regmixup.metrics.detection import aupr, auroc, fpr_at_tpr, roc_curve
from tests.references import metrics as reference

METRICS = {"auroc": auroc, "aupr": aupr, "fpr_at_tpr": fpr_at_tpr}

# A few integers give many ties; floats give none; infinities are legitimate scores.
VALUES = st.one_of(
    st.integers(0, 4).map(float), st.floats(-1e6, 1e6), st.sampled_from([math.inf, -math.inf, -0.0, 1e-300])
)
SCORES = st.lists(VALUES, min_size=1, max_size=25)


def tensors(*lists):
    return [torch.tensor(values, dtype=torch.float64) for values in lists]


def random_scores(count_id=400, count_ood=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    id_scores = torch.randn(count_id, generator=generator, dtype=torch.float64)
    return id_scores, torch.randn(count_ood, generator=generator, dtype=torch.float64) + 1


@settings(max_examples=60, deadline=None)
@given(id_scores=SCORES, ood_scores=SCORES)
def test_auroc_is_the_share_of_pairs_in_order(id_scores, ood_scores):
    assert auroc(*tensors(id_scores, ood_scores)) == pytest.approx(reference.auroc(id_scores, ood_scores), abs=1e-15)


@settings(max_examples=60, deadline=None)
@given(id_scores=SCORES, ood_scores=SCORES)
def test_swapping_the_sets_gives_one_minus_auroc(id_scores, ood_scores):
    a, b = tensors(id_scores, ood_scores)
    assert auroc(a, b) == pytest.approx(1 - auroc(b, a), abs=1e-15)


@settings(max_examples=60, deadline=None)
@given(id_scores=SCORES, ood_scores=SCORES)
def test_average_precision_agrees_with_the_loop_over_thresholds(id_scores, ood_scores):
    a, b = tensors(id_scores, ood_scores)
    assert aupr(a, b) == pytest.approx(reference.average_precision(id_scores, ood_scores), abs=1e-12)
    turned = reference.average_precision([-s for s in ood_scores], [-s for s in id_scores])
    assert aupr(a, b, positive="id") == pytest.approx(turned, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(id_scores=SCORES, ood_scores=SCORES, percent=st.integers(1, 100))
def test_fpr_agrees_with_raising_the_threshold_step_by_step(id_scores, ood_scores, percent):
    a, b = tensors(id_scores, ood_scores)
    tpr = percent / 100
    assert fpr_at_tpr(a, b, tpr=tpr) == reference.fpr_accepting_id(id_scores, ood_scores, percent, 100)
    turned = reference.fpr_accepting_id([-s for s in ood_scores], [-s for s in id_scores], percent, 100)
    assert fpr_at_tpr(a, b, tpr=tpr, convention="detect_ood") == turned


@settings(max_examples=30, deadline=None)
@given(id_scores=st.lists(st.floats(-50, 50), min_size=1), ood_scores=st.lists(st.floats(-50, 50), min_size=1))
def test_scikit_learn_agrees(id_scores, ood_scores):
    positive = np.r_[np.zeros(len(id_scores)), np.ones(len(ood_scores))]
    scores = np.array([*id_scores, *ood_scores])
    a, b = tensors(id_scores, ood_scores)
    assert auroc(a, b) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)
    assert aupr(a, b) == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    turned = average_precision_score(1 - positive, -scores)
    assert aupr(a, b, positive="id") == pytest.approx(turned, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(id_scores=st.lists(st.floats(-5, 5).map(partial(round, ndigits=1)), min_size=1), ood_scores=SCORES)
def test_the_roc_curve_is_that_of_scikit_learn_and_holds_the_auroc(id_scores, ood_scores):
    a, b = tensors(id_scores, [s for s in ood_scores if math.isfinite(s)] or [0.0])
    positive = np.r_[np.zeros(len(a)), np.ones(len(b))]
    fpr, tpr, threshold = sklearn_roc_curve(positive, torch.cat([a, b]).numpy(), drop_intermediate=False)
    curve = roc_curve(a, b)
    assert curve.threshold.tolist() == threshold.tolist()
    assert curve.fpr.tolist() == pytest.approx(fpr.tolist(), abs=1e-12)
    assert curve.tpr.tolist() == pytest.approx(tpr.tolist(), abs=1e-12)
    assert float(torch.trapezoid(curve.tpr, curve.fpr)) == pytest.approx(auroc(a, b), abs=1e-12)


def test_average_precision_has_float64_digits_on_many_samples():
    a, b = random_scores(2000, 2000)
    positive, scores = np.repeat([0, 1], 2000), torch.cat([a, b]).numpy()
    assert aupr(a, b) == pytest.approx(average_precision_score(positive, scores), abs=1e-14)


def test_separated_sets_give_the_best_values_and_reversed_ones_the_worst():
    low, high = torch.arange(0.0, 20.0), torch.arange(20.0, 40.0)
    assert (auroc(low, high), auroc(high, low)) == (1, 0)
    assert (fpr_at_tpr(low, high), fpr_at_tpr(high, low)) == (0, 1)
    assert aupr(low, high) == 1
    # Reversed, the k-th OOD sample is found after all 20 ID samples and the k - 1 OOD samples before it.
    assert aupr(high, low) == pytest.approx(sum(k / (20 + k) for k in range(1, 21)) / 20, abs=1e-12)


def test_a_constant_score_knows_nothing():
    inside, outside = torch.ones(8), torch.ones(24)
    assert auroc(inside, outside) == 0.5
    assert aupr(inside, outside) == 24 / 32
    assert aupr(inside, outside, positive="id") == 8 / 32
    assert fpr_at_tpr(inside, outside) == 1


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("transform", [torch.exp, torch.atan, lambda s: 1e6 * s - 3, lambda s: s**3])
def test_metrics_depend_on_the_order_alone(name, transform):
    a, b = random_scores()
    assert METRICS[name](transform(a), transform(b)) == METRICS[name](a, b)


@pytest.mark.parametrize("name", METRICS)
def test_scores_outside_zero_one_are_not_squashed(name):
    a, b = random_scores()
    # A sigmoid would round all of these to 1 and make them ties.
    assert METRICS[name](a + 1000, b + 1000) == pytest.approx(METRICS[name](a, b), abs=1e-6)


def test_infinite_scores_are_ranked():
    a, b = tensors([-math.inf, 0.0], [math.inf, 0.0])
    assert auroc(a, b) == (1 + 1 + 1 + 0.5) / 4
    assert fpr_at_tpr(a, b, tpr=1.0) == 0.5


def test_single_samples():
    one, two = tensors([1.0], [2.0])
    assert (auroc(one, two), auroc(two, one), auroc(one, one)) == (1.0, 0.0, 0.5)
    assert (aupr(one, two), aupr(two, one), aupr(one, one)) == (1.0, 0.5, 0.5)
    assert (fpr_at_tpr(one, two), fpr_at_tpr(two, one), fpr_at_tpr(one, one)) == (0.0, 1.0, 1.0)


def test_the_two_fpr_conventions_differ():
    a, b = torch.arange(20.0), torch.tensor([5.0, 18.0, 18.5, 30.0])
    assert fpr_at_tpr(a, b) == 2 / 4  # 19 of 20 ID samples lie at or below 18
    assert fpr_at_tpr(a, b, convention="detect_ood") == 15 / 20  # all four OOD samples lie at or above 5


@pytest.mark.parametrize("count", [20, 40, 100, 1000, 10_000])
@pytest.mark.parametrize("percent", [5, 29, 55, 57, 95, 99])
def test_the_threshold_accepts_the_smallest_sufficient_number(count, percent):
    scores = torch.arange(count, dtype=torch.float64)
    needed = math.ceil(Fraction(percent, 100) * count)
    assert fpr_at_tpr(scores, scores, tpr=percent / 100) == needed / count


def test_auroc_counts_exactly_at_full_size():
    """10,000 x 26,032 pairs as in CIFAR-10 against SVHN: every OOD score above all but k ID scores."""
    a = torch.arange(10_000, dtype=torch.float32)
    b = torch.full((26_032,), 9_990.5)
    assert auroc(a, b) == 9_991 / 10_000


def test_half_precision_and_integer_scores_are_accepted():
    a, b = torch.tensor([0, 1, 2]), torch.tensor([1, 3])
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int64):
        assert auroc(a.to(dtype), b.to(dtype)) == 4.5 / 6
    assert auroc(a.numpy(), b.numpy()) == 4.5 / 6


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("argument", ["id_scores", "ood_scores"])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.zeros(0), r"must be a non-empty \(N,\) tensor, got shape \(0,\)"),
        (torch.zeros(2, 1), r"must be a non-empty \(N,\) tensor, got shape \(2, 1\)"),
        (torch.tensor(1.0), r"must be a non-empty \(N,\) tensor, got shape \(\)"),
        (torch.tensor([1.0, math.nan, math.nan]), "must not contain NaN, got 2 of 3"),
    ],
)
def test_bad_scores_are_refused_by_name(name, argument, bad, message):
    scores = {"id_scores": torch.zeros(3), "ood_scores": torch.zeros(3), argument: bad}
    with pytest.raises(ValueError, match=f"^{argument} {message}"):
        METRICS[name](**scores)


def test_unknown_options_are_refused():
    a, b = random_scores(5, 5)
    with pytest.raises(ValueError, match="positive must be 'ood' or 'id', got 'out'"):
        aupr(a, b, positive="out")
    with pytest.raises(ValueError, match=r"convention must be .* got 'ood'"):
        fpr_at_tpr(a, b, convention="ood")
    for tpr in (0.0, 1.5, -1.0, math.nan):
        with pytest.raises(ValueError, match=rf"tpr must lie in \(0, 1\], got {tpr}"):
            fpr_at_tpr(a, b, tpr=tpr)
