"""Risk and coverage against loops, and ties against every order of the tied samples."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.detection import ScorePair
from regmixup.metrics.selective import SELECTIVE, augrc, failure_auroc, risk_coverage
from tests.references import metrics as reference

SAMPLES = st.lists(st.tuples(st.integers(0, 6).map(float), st.booleans()), min_size=1, max_size=25)


def tensors(samples):
    return torch.tensor([s for s, _ in samples]), torch.tensor([c for _, c in samples])


@pytest.mark.parametrize("name", ["aurc", "augrc"])
@settings(max_examples=40, deadline=None)
@given(correct=st.lists(st.booleans(), min_size=1, max_size=40), seed=st.integers(0, 1000))
def test_areas_without_ties_agree_with_the_loop(name, correct, seed):
    scores = torch.randperm(len(correct), generator=torch.Generator().manual_seed(seed)).double()
    found = SELECTIVE[name](scores, torch.tensor(correct))
    assert found == pytest.approx(getattr(reference, name)(scores.tolist(), correct), abs=1e-12)


@pytest.mark.parametrize("name", ["aurc", "augrc"])
@pytest.mark.parametrize("correct", [[1, 0, 1, 0, 0], [0, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
def test_areas_with_ties_are_the_mean_over_all_orders(name, correct):
    """Scores 0, 1, 1, 1, 2: the three tied samples may come in any of 6 orders."""
    correct = [bool(c) for c in correct]
    orders = [[correct[0], *middle, correct[4]] for middle in itertools.permutations(correct[1:4])]
    expected = sum(getattr(reference, name)(range(5), order) for order in orders) / 6
    found = SELECTIVE[name](torch.tensor([0.0, 1, 1, 1, 2]), torch.tensor(correct))
    assert found == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(samples=SAMPLES)
def test_failure_auroc_counts_pairs_and_gives_augrc(samples):
    """AUGRC = (1 - AUROC_f) acc (1 - acc) + (1 - acc)^2 / 2 (Traub et al., 2024)."""
    scores, correct = tensors(samples)
    acc = float(correct.double().mean())
    if acc in (0, 1):
        assert augrc(scores, correct) == (1 - acc) / 2
        with pytest.raises(ValueError, match=f"right and wrong predictions, got {int(correct.sum())} right ones of"):
            failure_auroc(scores, correct)
        return
    found = failure_auroc(scores, correct)
    assert found == reference.failure_auroc(scores.tolist(), correct.tolist())
    assert augrc(scores, correct) == pytest.approx((1 - found) * acc * (1 - acc) + (1 - acc) ** 2 / 2, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(samples=SAMPLES)
def test_the_curve_counts_what_each_threshold_accepts(samples):
    scores, correct = tensors(samples)
    curve = risk_coverage(scores, correct)
    assert curve.threshold.tolist() == sorted(set(scores.tolist()))
    for threshold, coverage, risk in zip(curve.threshold, curve.coverage, curve.risk, strict=True):
        accepted = [c for s, c in samples if s <= threshold]
        assert float(coverage) == len(accepted) / len(samples)
        assert float(risk) == accepted.count(False) / len(accepted)


@pytest.mark.parametrize(
    ("scores", "correct", "message"),
    [
        (torch.tensor([math.nan]), torch.tensor([True]), "scores must not contain NaN, got 1 of 1"),
        (torch.zeros(2), torch.tensor([1, 0]), r"correct must be booleans of shape \(2,\), got torch.int64 \(2,\)"),
        (torch.zeros(2), torch.tensor([True]), r"correct must be booleans of shape \(2,\), got torch.bool \(1,\)"),
    ],
)
def test_arguments_are_checked(scores, correct, message):
    for function in (risk_coverage, *SELECTIVE.values()):
        with pytest.raises(ValueError, match=message):
            function(scores, correct)


def test_a_resample_without_errors_has_no_failure_auroc():
    counts, correct = Bootstrap(resamples=50).counts(9), torch.arange(9) > 0
    pair = ScorePair.of_errors(torch.arange(9.0).flip(0), correct).weighted(counts[:, correct], counts[:, ~correct])
    without = counts[:, 0] == 0
    assert torch.equal(failure_auroc(pair).isnan(), without)
    assert set(failure_auroc(pair)[~without].tolist()) == {1.0}
    assert augrc(pair)[without].tolist() == [0.0] * int(without.sum())
