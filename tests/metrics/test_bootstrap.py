"""Resampling counts, percentile intervals and what they promise."""

import math

import pytest
import torch

from regmixup.metrics.bootstrap import Bootstrap, Interval
from regmixup.metrics.calibration import CLASSIFICATION, accuracy
from regmixup.metrics.outcomes import Outcomes


def test_counts_are_resamples():
    """Rows sum to N; a count is Binomial(N, 1 / N): mean 1, variance 1 - 1 / N, zero with (1 - 1 / N)^N."""
    counts = Bootstrap(resamples=3000).counts(50).double()
    assert (counts.sum(dim=1) == 50).all()
    assert float(counts.var()) == pytest.approx(0.98, abs=0.02)
    assert float((counts == 0).double().mean()) == pytest.approx(0.98**50, abs=0.01)
    assert counts.mean(dim=0).tolist() == pytest.approx([1] * 50, abs=0.1)


def test_counts_depend_on_seed_stream_and_size_alone():
    bootstrap = Bootstrap(resamples=20)
    counts = bootstrap.counts(30, stream="svhn/test")
    assert torch.equal(counts, Bootstrap(resamples=20, level=0.5).counts(30, stream="svhn/test"))
    for other in (bootstrap.counts(30), Bootstrap(resamples=20, seed=1).counts(30, stream="svhn/test")):
        assert not torch.equal(counts, other)


def test_many_resamples_are_drawn_in_pieces_without_a_seam(monkeypatch):
    whole = Bootstrap(resamples=50).counts(40)
    monkeypatch.setattr("regmixup.metrics.bootstrap._PIECE", 7 * 40)
    assert torch.equal(Bootstrap(resamples=50).counts(40), whole)


def test_the_interval_is_of_percentiles_that_occur():
    values = torch.arange(1000.0)[torch.randperm(1000, generator=torch.Generator().manual_seed(0))]
    assert Bootstrap().interval(values) == Interval(24.0, 975.0)
    assert Bootstrap(level=0.5).interval(torch.tensor([math.inf, 1.0, math.inf])) == Interval(1.0, math.inf)


def test_resampled_values_are_moved_about_the_value_but_not_below_zero():
    values = torch.arange(1000.0)
    assert Bootstrap().interval(values, about=1499.5) == Interval(1024.0, 1975.0)
    assert Bootstrap().interval(values, about=99.5) == Interval(0.0, 575.0)
    assert Bootstrap().interval(values, about=99.5, least=-math.inf) == Interval(-376.0, 575.0)


def test_for_a_calibrated_model_the_debiased_interval_holds_the_truth_and_that_of_ece_hardly_ever():
    """100 sets of 2,000 predictions whose labels are drawn from them, so that the population's error is 0."""
    generator = torch.Generator().manual_seed(0)
    covered, total = {"ece": 0, "debiased_ece": 0}, {"ece": 0.0, "debiased_ece": 0.0}
    for seed in range(100):
        probs = (2 * torch.randn(2000, 5, generator=generator, dtype=torch.float64)).softmax(dim=1)
        labels = torch.multinomial(probs, 1, generator=generator)[:, 0]
        bootstrap = Bootstrap(resamples=100, seed=seed)
        outcomes = Outcomes.of(probs, labels)
        weighted = outcomes.weighted(bootstrap.counts(2000))
        for name in covered:
            value = CLASSIFICATION[name](outcomes)
            total[name] += value / 100
            covered[name] += bootstrap.interval(CLASSIFICATION[name](weighted), about=value).low == 0
    assert covered["ece"] <= 5
    assert covered["debiased_ece"] >= 85
    assert total["debiased_ece"] < 0.015 < 0.025 < total["ece"]


def test_intervals_cover_the_truth_as_often_as_they_say():
    """150 sets of 400 predictions that are right with 0.8: intervals of level 0.9 cover that about 135 times."""
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for seed in range(150):
        bootstrap = Bootstrap(resamples=200, seed=seed, level=0.9)
        labels = (torch.rand(400, generator=generator) >= 0.8).long()
        probs = torch.tensor([[1.0, 0.0]]).expand(400, 2)
        found = bootstrap.interval(accuracy(Outcomes.of(probs, labels).weighted(bootstrap.counts(400))))
        covered += found.low <= 0.8 <= found.high
    assert covered == pytest.approx(135, abs=12)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resamples": 0}, "resamples must be an integer >= 1, got 0"),
        ({"level": 95}, "level must be a finite number > 0 and < 1, got 95"),
    ],
)
def test_settings_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        Bootstrap(**fields)


def test_there_must_be_samples_to_draw_from():
    with pytest.raises(ValueError, match="total must be an integer >= 1, got 0"):
        Bootstrap().counts(0)
