"""Classwise, maximum and debiased calibration error against loops, closed forms and what they promise on average."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.metrics.calibration import classwise_ece, debiased_ece, ece, mce
from tests.metrics.test_calibration import classified, softmax_table
from tests.references import metrics as reference

METRICS = {"classwise_ece": classwise_ece, "debiased_ece": debiased_ece, "mce": mce}


@settings(max_examples=60, deadline=None)
@given(data=classified(max_samples=25), num_bins=st.sampled_from([1, 3, 15]))
def test_variants_agree_with_loops(data, num_bins):
    arrays = [np.asarray(part) for part in data]
    assert mce(*data, num_bins=num_bins) == pytest.approx(reference.mce(*arrays, num_bins), abs=1e-12)
    if arrays[0].shape[1] <= 10:
        twin = reference.classwise_ece(*arrays, num_bins)
        assert classwise_ece(*data, num_bins=num_bins) == pytest.approx(twin, abs=1e-12)
    squared = max(0.0, reference.debiased_squared_ece(*arrays, num_bins))
    assert debiased_ece(*data, num_bins=num_bins) ** 2 == pytest.approx(squared, abs=1e-12)


def test_two_classes_are_calibrated_alike_so_classwise_error_is_that_of_either():
    """p_1 = 1 - p_0 mirrors the bins and turns the sign of every gap."""
    probs, labels = softmax_table(300, 2, seed=1)
    total = sum(
        abs(float((probs[inside, 0] - (labels[inside] == 0).double()).sum()))
        for low in range(15)
        if (inside := (probs[:, 0] > low / 15) & (probs[:, 0] <= (low + 1) / 15)).any()
    )
    assert classwise_ece(probs, labels) == pytest.approx(total / 300, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_classwise_error_reads_the_table_in_pieces(classes, monkeypatch):
    monkeypatch.setattr("regmixup.metrics.outcomes._PIECE", 2**14)
    samples = 3 * 2**14 // classes
    probs, labels = softmax_table(samples, classes, seed=classes)
    gap = probs - torch.nn.functional.one_hot(labels, classes)
    bins = (probs * 15).ceil().clamp(1, 15).long() - 1
    sums = torch.zeros(classes, 15, dtype=torch.float64).scatter_add(1, bins.T, gap.T)
    assert classwise_ece(probs, labels) == pytest.approx(float(sums.abs().sum()) / samples / classes, rel=1e-10)


def test_variants_order_as_they_must():
    """The worst bin is at least the mean; the root mean square (all bins large, so hardly corrected) is too."""
    probs, labels = softmax_table(20_000, 5, seed=2)
    assert ece(probs, labels) <= mce(probs, labels)
    assert ece(probs, labels) <= debiased_ece(probs, labels) + 1e-3


def test_debiased_error_is_right_on_average_where_the_plug_in_is_not():
    """20,000 sets of 10 coins that say 0.8 and are right with 0.7: the squared error is 0.01, and the plug-in adds
    0.7 * 0.3 / 10 = 0.021. Values below 0 are cut by the root, so the loop's squared estimate is averaged."""
    rng = np.random.default_rng(0)
    right = rng.random((20_000, 10)) < 0.7
    accuracy = right.mean(axis=1)
    plug_in = (0.8 - accuracy) ** 2
    debiased = plug_in - accuracy * (1 - accuracy) / 9
    assert plug_in.mean() == pytest.approx(0.031, abs=1e-3)
    assert debiased.mean() == pytest.approx(0.010, abs=1e-3)
    probs = torch.tensor([[0.8, 0.2]] * 10, dtype=torch.float64)
    for row, expected in zip(right[:50], debiased[:50], strict=True):
        found = debiased_ece(probs, torch.from_numpy(1 - row.astype(np.int64)))
        assert found == pytest.approx(math.sqrt(max(0.0, expected)), abs=1e-7)


def test_calibrated_predictions_have_a_smaller_debiased_than_plain_error():
    generator = torch.Generator().manual_seed(3)
    probs = (2 * torch.randn(2000, 5, generator=generator, dtype=torch.float64)).softmax(dim=1)
    draws = [torch.multinomial(probs, 1, generator=generator).squeeze(1) for _ in range(20)]
    assert np.mean([debiased_ece(probs, labels) for labels in draws]) < np.mean(
        [ece(probs, labels) for labels in draws]
    )


@pytest.mark.parametrize("name", METRICS)
def test_variants_check_their_arguments_and_return_floats(name):
    probs, labels = softmax_table(5, 3, seed=4)
    assert type(METRICS[name](probs, labels)) is float
    with pytest.raises(ValueError, match="num_bins must be at least 1, got 0"):
        METRICS[name](probs, labels, num_bins=0)
    with pytest.raises(ValueError, match=r"probs must lie in \[0, 1\]"):
        METRICS[name](-probs, labels)
