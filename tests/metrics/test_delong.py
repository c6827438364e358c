"""DeLong's variance and test against all pairs, a covariance matrix by hand, and the bootstrap."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.detection import ScorePair, auroc, auroc_interval, compare_auroc
from tests.metrics.test_detection import random_scores, tensors
from tests.references import metrics as reference

SCORES = st.lists(st.one_of(st.integers(0, 4).map(float), st.floats(-10, 10)), min_size=2, max_size=20)


@settings(max_examples=50, deadline=None)
@given(id_scores=SCORES, ood_scores=SCORES)
def test_variance_agrees_with_all_pairs(id_scores, ood_scores):
    found = auroc_interval(*tensors(id_scores, ood_scores))
    for_id, for_ood = reference.delong_components(id_scores, ood_scores)
    assert found.value == pytest.approx(reference.auroc(id_scores, ood_scores), abs=1e-12)
    variance = for_id.var(ddof=1) / len(for_id) + for_ood.var(ddof=1) / len(for_ood)
    assert found.std_error == pytest.approx(math.sqrt(variance), abs=1e-9)


@pytest.mark.parametrize("ties", [False, True])
def test_the_paired_test_agrees_with_the_covariance_of_components(ties):
    """DeLong et al.: var(A - B) = L S L^T with L = (1, -1) and S the sum of the two covariance matrices over n."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=90)
    noise = 0.7 * rng.normal(size=(2, 90))
    scores = shared + noise + np.r_[np.zeros(50), np.full(40, 0.8)]
    scores = scores.round(1) if ties else scores
    first, second = ((torch.from_numpy(s[:50]), torch.from_numpy(s[50:])) for s in scores)
    parts = [reference.delong_components(s[:50], s[50:]) for s in scores]
    covariance = np.cov([p[0] for p in parts]) / 50 + np.cov([p[1] for p in parts]) / 40
    error = math.sqrt(np.array([1, -1]) @ covariance @ np.array([1, -1]))
    found = compare_auroc(first, second, level=0.9)
    assert found.difference == pytest.approx(auroc(*first) - auroc(*second), abs=1e-12)
    assert found.std_error == pytest.approx(error, rel=1e-9)
    assert found.z == pytest.approx(found.difference / error, rel=1e-9)
    assert found.p_value == pytest.approx(2 * norm.sf(abs(found.z)), rel=1e-9)
    assert found.high - found.low == pytest.approx(2 * norm.ppf(0.95) * error, rel=1e-9)
    turned = compare_auroc(second, first, level=0.9)
    assert (turned.difference, turned.z, turned.low) == pytest.approx((-found.difference, -found.z, -found.high))


def test_the_bootstrap_agrees_on_the_spread_and_the_interval():
    a, b = random_scores(600, 500, seed=1)
    bootstrap = Bootstrap(resamples=2000)
    counts = bootstrap.counts(600, stream="a"), bootstrap.counts(500, stream="b")
    values = auroc(ScorePair.of(a, b).weighted(*counts))
    found, interval = auroc_interval(a, b), bootstrap.interval(values)
    assert float(values.std()) == pytest.approx(found.std_error, rel=0.06)
    assert (interval.low, interval.high) == pytest.approx((found.low, found.high), abs=0.2 * found.std_error)


def test_the_interval_covers_the_true_value_as_often_as_it_says():
    """Normal scores one apart: AUROC = Phi(1 / sqrt 2). 400 intervals of level 0.9 cover it 360 +- 3 * 6 times."""
    truth = norm.cdf(1 / math.sqrt(2))
    found = [auroc_interval(*random_scores(80, 60, seed=seed), level=0.9) for seed in range(400)]
    assert sum(f.low <= truth <= f.high for f in found) == pytest.approx(360, abs=18)


def test_equal_scores_do_not_differ_and_certain_ones_do():
    a, b = random_scores(30, 30)
    same = compare_auroc((a, b), (2 * a, 2 * b))
    assert (same.difference, same.z, same.p_value) == (0.0, 0.0, 1.0)
    low, high = torch.zeros(5), torch.ones(5)
    certain = compare_auroc((low, high), (high, low))
    assert (certain.difference, certain.z, certain.p_value) == (1.0, math.inf, 0.0)
    assert auroc_interval(low, high).std_error == 0


def test_arguments_are_checked():
    a, b = random_scores(5, 5)
    with pytest.raises(ValueError, match="two samples of each kind, got 5 id and 1 ood"):
        auroc_interval(a, b[:1])
    with pytest.raises(ValueError, match=r"same samples, got \(5, 5\) and \(4, 5\)"):
        compare_auroc((a, b), (a[:4], b))
    with pytest.raises(ValueError, match="level must be a finite number > 0 and < 1, got 95"):
        auroc_interval(a, b, level=95)
