"""Accuracy and calibration against loops and three libraries, with the known disagreements written down."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss

from regmixup.metrics.calibration import (
    accuracy,
    adaptive_ece,
    brier,
    debiased_ece,
    ece,
    nll,
    reliability,
)
from tests.references import metrics as reference

METRICS = {"accuracy": accuracy, "nll": nll, "brier": brier, "ece": ece, "adaptive_ece": adaptive_ece}
ALL = {**METRICS, "debiased_ece": debiased_ece}


@st.composite
def classified(draw, max_samples=40):
    """Probabilities as ratios of small integers (exact 0, exact 1, many ties, edges hit exactly), and labels."""
    samples, classes = draw(st.integers(1, max_samples)), draw(st.sampled_from([1, 2, 3, 10, 100]))
    rng = np.random.default_rng(draw(st.integers(0, 10**9)))
    counts = rng.integers(0, draw(st.sampled_from([1, 2, 5, 15, 1000])) + 1, (samples, classes))
    counts[counts.sum(axis=1) == 0, 0] = 1
    labels = rng.integers(0, classes, samples)
    return torch.from_numpy(counts / counts.sum(axis=1, keepdims=True)), torch.from_numpy(labels)


def softmax_table(samples, classes, seed, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    probs = (scale * torch.randn(samples, classes, generator=generator, dtype=torch.float64)).softmax(dim=1)
    return probs, torch.randint(classes, (samples,), generator=generator)


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=40, deadline=None)
@given(data=classified())
def test_metrics_agree_with_loops(name, data):
    twins = {**vars(reference), "adaptive_ece": reference.adaptive_ece_interp}
    assert METRICS[name](*data) == pytest.approx(twins[name](*map(np.asarray, data)), abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(data=classified(), num_bins=st.sampled_from([1, 2, 3, 5, 10, 15, 30]))
def test_calibration_errors_agree_with_loops_for_any_number_of_bins(data, num_bins):
    arrays = [np.asarray(part) for part in data]
    assert ece(*data, num_bins=num_bins) == pytest.approx(reference.ece(*arrays, num_bins), abs=1e-12)
    interp = adaptive_ece(*data, num_bins=num_bins)
    assert interp == pytest.approx(reference.adaptive_ece_interp(*arrays, num_bins), abs=1e-12)
    split = adaptive_ece(*data, num_bins=num_bins, binning="split")
    assert split == pytest.approx(reference.adaptive_ece_split(*arrays, num_bins), abs=1e-12)


def test_a_confidence_of_zero_is_counted_in_the_first_bin():
    # All-zero rows are not a distribution, but they must not vanish from the count.
    diagram = reliability(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([1, 0]))
    assert diagram.count.tolist() == [1] + [0] * 13 + [1]


def test_reliability_has_nan_in_empty_bins_and_the_means_in_the_others():
    probs = torch.tensor([[0.65, 0.35], [0.64, 0.36], [1.0, 0.0]], dtype=torch.float64)
    diagram = reliability(probs, torch.tensor([0, 1, 0]), num_bins=5)
    assert diagram.count.tolist() == [0, 0, 0, 2, 1]
    assert torch.isnan(diagram.confidence[:3]).all()
    assert torch.isnan(diagram.accuracy[:3]).all()
    assert diagram.confidence[3:].tolist() == pytest.approx([0.645, 1.0])
    assert diagram.accuracy[3:].tolist() == [0.5, 1.0]


def test_interpolated_bins_leave_out_the_smallest_confidence_and_put_ties_in_the_first_bin_that_reaches_them():
    """Edges at positions 0, 2, 4, ...: 0.6, then 1.0 fifteen times: 29 samples fall in the first bin, one in none."""
    probs = torch.tensor([[0.6, 0.4]] + [[1.0, 0.0]] * 29, dtype=torch.float64)
    assert adaptive_ece(probs, torch.zeros(30, dtype=torch.int64)) == 0.0
    assert adaptive_ece(probs, torch.tensor([0] + [1] * 29)) == pytest.approx(29 / 30)
    assert adaptive_ece(probs, torch.zeros(30, dtype=torch.int64), binning="split") == pytest.approx(0.4 / 30)


def test_scikit_learn_clips_a_zero_probability_and_we_do_not():
    probs, labels = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0])
    clipped = log_loss(labels, probs, labels=[0, 1])
    assert clipped == pytest.approx((-math.log(np.finfo(np.float64).eps) + math.log(2)) / 2)
    assert nll(torch.from_numpy(probs), torch.from_numpy(labels)) == math.inf


def test_scikit_learn_halves_the_brier_score_of_two_classes():
    probs, labels = softmax_table(200, 2, seed=7)
    assert nll(probs, labels) == pytest.approx(log_loss(labels, probs, labels=range(2)), rel=1e-12)
    assert brier(probs, labels) == pytest.approx(2 * brier_score_loss(labels, probs[:, 1]), rel=1e-12)


def ece_of_netcal(probs, labels, bins):
    from netcal.metrics import ECE  # here, as torchmetrics above: both take seconds, which only one worker needs to pay

    return float(ECE(bins).measure(probs.numpy(), labels.numpy()))


def test_netcal_counts_a_confidence_on_an_edge_in_the_bin_above():
    """netcal's bins are [lo, hi), ours (lo, hi]. With 4 bins, 0.75 right joins 0.7 wrong with us, 0.8 and
    0.9 right with it: |0.7 + 0.75 - 1| + |0.8 + 0.9 - 2| = 0.75 and |0.7| + |0.75 + 0.8 + 0.9 - 3| = 1.25, over 4.
    """
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.75, 0.15, 0.1], [0.8, 0.1, 0.1], [0.1, 0.0, 0.9]], dtype=torch.float64)
    labels = torch.tensor([1, 0, 0, 2])
    assert ece(probs, labels, num_bins=4) == pytest.approx(0.75 / 4, abs=1e-12)
    assert ece_of_netcal(probs, labels, 4) == pytest.approx(1.25 / 4, abs=1e-12)


def test_a_value_out_of_range_is_found_in_any_piece(monkeypatch):
    monkeypatch.setattr("regmixup.metrics.outcomes._PIECE", 4)
    for bad in (-0.5, 1.5, math.nan):
        probs, labels = softmax_table(9, 2, seed=0)
        probs[7, 1] = bad
        for metric in METRICS.values():
            with pytest.raises(ValueError, match=r"probs must lie in \[0, 1\]"):
                metric(probs, labels)


@settings(max_examples=25, deadline=None)
@given(data=classified(max_samples=25), num_bins=st.sampled_from([1, 3, 15]))
def test_the_debiased_error_agrees_with_loops(data, num_bins):
    arrays = [np.asarray(part) for part in data]
    squared = max(0.0, reference.debiased_squared_ece(*arrays, num_bins))
    assert debiased_ece(*data, num_bins=num_bins) ** 2 == pytest.approx(squared, abs=1e-12)


@pytest.mark.parametrize("classes", [3, 50])
def test_ece_of_torchmetrics_and_netcal_where_no_confidence_sits_on_an_edge(classes):
    """torchmetrics uses [lo, hi) and a bin of its own for confidence 1; away from the edges that is no difference."""
    from torchmetrics.functional.classification import multiclass_calibration_error

    probs, labels = softmax_table(500, classes, seed=classes)
    distance = (probs.amax(dim=1)[:, None] - torch.linspace(0, 1, 16, dtype=torch.float64)).abs().min()
    assert distance > 1e-6
    theirs = multiclass_calibration_error(probs, labels, num_classes=classes, n_bins=15, norm="l1")
    assert ece(probs, labels) == pytest.approx(float(theirs), abs=1e-6)
    assert ece(probs, labels) == pytest.approx(ece_of_netcal(probs, labels, 15), abs=1e-12)


@pytest.mark.parametrize(("classes", "dtype"), [(2, torch.float16), (100, torch.float32), (1000, torch.float64)])
def test_tables_read_in_several_pieces_by_several_threads_give_the_same(classes, dtype, monkeypatch):
    probs, labels = softmax_table(500, classes, seed=classes)
    probs = probs.to(dtype)
    probs[::7] = probs[0]  # ties between samples
    whole = {name: metric(probs, labels) for name, metric in ALL.items()}
    monkeypatch.setattr("regmixup.metrics.outcomes._PIECE", 37 * classes)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert {name: metric(probs, labels) for name, metric in ALL.items()} == pytest.approx(whole, abs=1e-12)
    twin = reference.adaptive_ece_split(probs.double().numpy(), labels.numpy())
    assert adaptive_ece(probs, labels, binning="split") == pytest.approx(twin, abs=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_metrics_are_python_floats_and_accept_numpy_and_short_integers(name):
    probs, labels = softmax_table(30, 3, seed=10)
    metric = ALL[name]
    assert type(metric(probs, labels)) is float
    assert metric(probs.numpy(), labels.numpy().astype(np.int32)) == metric(probs, labels)


@pytest.mark.parametrize(
    ("name", "probs", "labels", "message"),
    [
        ("nll", [0.5, 0.5], [0], r"probs must be floating point \(N, K\), N >= 1, got torch.float32 \(2,\)"),
        ("ece", [[1, 0]], [0], r"probs must be floating point .* got torch.int64 \(1, 2\)"),
        ("accuracy", [[0.5, 0.5]], [0, 1], r"labels must be integers of shape \(1,\), got torch.int64 \(2,\)"),
        ("brier", [[0.5, 0.5]], ["cat"], r"labels must be a tensor or an array of numbers, got \['cat'\]"),
        ("ece", [[0.5, 0.5]], [2], r"labels must lie in \[0, 2\), got values from 2 to 2"),
        ("ece", [[0.5, 0.5]], [-1], r"labels must lie in \[0, 2\), got values from -1 to -1 \(-1: the class is unk"),
        ("accuracy", [[5.0, -2.0]], [0], r"probs must lie in \[0, 1\] .pass softmax.logits.., got values from -2 to 5"),
        ("ece", np.zeros((0, 3)), np.zeros(0, int), r"probs must be .*, N >= 1, got torch.float64 \(0, 3\)"),
    ],
)
def test_metrics_refuse_what_they_cannot_use(name, probs, labels, message):
    with pytest.raises(ValueError, match=message):
        METRICS[name](torch.tensor(probs), labels if "cat" in labels else torch.tensor(labels))


@pytest.mark.parametrize(
    ("metric", "options", "message"),
    [
        (adaptive_ece, {"binning": "width"}, "binning must be 'interp' or 'split', got 'width'"),
        (ece, {"num_bins": 0}, "num_bins must be an integer >= 1, got 0"),
        (ece, {"num_bins": 7.9}, r"num_bins must be an integer >= 1, got 7\.9"),
        (adaptive_ece, {"num_bins": True}, "num_bins must be an integer >= 1, got True"),
        (debiased_ece, {"num_bins": "15"}, "num_bins must be an integer >= 1, got '15'"),
        (reliability, {"num_bins": None}, "num_bins must be an integer >= 1, got None"),
    ],
)
def test_unknown_options_are_refused(metric, options, message):
    with pytest.raises(ValueError, match=message):
        metric(*softmax_table(5, 2, seed=11), **options)
