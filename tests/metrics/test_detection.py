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
    a, b = tensors(id_scores, ood_scores)
    assert auroc(a, b) == pytest.approx(reference.auroc(id_scores, ood_scores), abs=1e-15)
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


@settings(max_examples=40, deadline=None)
@given(id_scores=st.lists(st.floats(-5, 5).map(partial(round, ndigits=1)), min_size=1), ood_scores=SCORES)
def test_scikit_learn_agrees(id_scores, ood_scores):
    a, b = tensors(id_scores, [s for s in ood_scores if math.isfinite(s)] or [0.0])
    positive, scores = np.r_[np.zeros(len(a)), np.ones(len(b))], torch.cat([a, b]).numpy()
    assert auroc(a, b) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)
    assert aupr(a, b) == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    turned = average_precision_score(1 - positive, -scores)
    assert aupr(a, b, positive="id") == pytest.approx(turned, abs=1e-12)
    fpr, tpr, threshold = sklearn_roc_curve(positive, scores, drop_intermediate=False)
    curve = roc_curve(a, b)
    assert curve.threshold.tolist() == threshold.tolist()
    assert curve.fpr.tolist() == pytest.approx(fpr.tolist(), abs=1e-12)
    assert curve.tpr.tolist() == pytest.approx(tpr.tolist(), abs=1e-12)
    assert float(torch.trapezoid(curve.tpr, curve.fpr)) == pytest.approx(auroc(a, b), abs=1e-12)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("transform", [torch.atan, lambda s: 1e6 * s - 3])
def test_metrics_depend_on_the_order_alone(name, transform):
    """Scores far outside [0, 1], too: a sigmoid would make them ties."""
    a, b = random_scores()
    assert METRICS[name](transform(a), transform(b)) == METRICS[name](a, b)


@pytest.mark.parametrize(("count", "percent"), [(20, 95), (40, 55), (100, 29), (1000, 57), (10_000, 99), (20, 5)])
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


@pytest.mark.parametrize(
    ("name", "argument", "bad", "message"),
    [
        ("auroc", "id_scores", torch.zeros(0), r"must be a non-empty \(N,\) tensor, got shape \(0,\)"),
        ("aupr", "ood_scores", torch.zeros(2, 1), r"must be a non-empty \(N,\) tensor, got shape \(2, 1\)"),
        ("fpr_at_tpr", "id_scores", torch.tensor([1.0, math.nan, math.nan]), "must not contain NaN, got 2 of 3"),
    ],
)
def test_bad_scores_are_refused_by_name(name, argument, bad, message):
    scores = {"id_scores": torch.zeros(3), "ood_scores": torch.zeros(3), argument: bad}
    with pytest.raises(ValueError, match=f"^{argument} {message}"):
        METRICS[name](**scores)


@pytest.mark.parametrize(
    ("metric", "option", "message"),
    [
        (aupr, {"positive": "out"}, "positive must be 'ood' or 'id', got 'out'"),
        (fpr_at_tpr, {"convention": "ood"}, "convention must be .* got 'ood'"),
        (fpr_at_tpr, {"tpr": 0.0}, "tpr must be a finite number > 0 and <= 1, got 0.0"),
        (fpr_at_tpr, {"tpr": None}, "tpr must be a finite number > 0 and <= 1, got None"),
    ],
)
def test_unknown_options_are_refused(metric, option, message):
    with pytest.raises(ValueError, match=message):
        metric(*random_scores(5, 5), **option)
