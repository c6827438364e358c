"""Every bootstrap value equals the metric itself on the samples written out as often as they were drawn."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.metrics.bootstrap import Bootstrap, Counts
from regmixup.metrics.outcomes import outcomes_of
from regmixup.metrics.registry import (
    CLASSIFICATION,
    DETECTION,
    resample_classification,
    resample_detection,
)
from regmixup.metrics.selective import SELECTIVE
from regmixup.types import higher_is_better
from tests.metrics.test_calibration import classified, softmax_table
from tests.metrics.test_detection import SCORES, random_scores, tensors

BOOTSTRAP = Bootstrap(resamples=6)
# The root of a difference that may round to either side of 0 has half the digits.
TOLERANCE = {"debiased_ece": 1e-7}


def check_classification(probs, labels, counts):
    found = resample_classification(probs, labels, counts, CLASSIFICATION)
    assert list(found) == list(CLASSIFICATION)
    for name, values in found.items():
        assert values.dtype == torch.float64
        for value, times in zip(values.tolist(), counts.values.long(), strict=True):
            drawn = probs.repeat_interleave(times, dim=0), labels.repeat_interleave(times)
            expected = CLASSIFICATION[name].value(*drawn)
            assert value == pytest.approx(expected, abs=TOLERANCE.get(name, 1e-12)), name


def check_detection(a, b, id_counts, ood_counts):
    found = resample_detection(a, b, id_counts, ood_counts, DETECTION)
    assert list(found) == list(DETECTION)
    for name, values in found.items():
        assert values.dtype == torch.float64
        rows = zip(values.tolist(), id_counts.values.long(), ood_counts.values.long(), strict=True)
        for value, id_times, ood_times in rows:
            expected = DETECTION[name].value(a.repeat_interleave(id_times), b.repeat_interleave(ood_times))
            # Everything but average precision is a quotient of whole numbers.
            assert value == (pytest.approx(expected, abs=1e-12) if "aupr" in name else expected), name


@settings(max_examples=25, deadline=None)
@given(data=classified(), seed=st.integers(0, 1000))
def test_classification_equals_the_metric_of_the_samples_drawn(data, seed):
    """Ties, exact 0 and 1, empty bins, one class, infinite likelihoods, from one sample on."""
    counts = Bootstrap(resamples=6, seed=seed).counts(len(data[1]))
    check_classification(*data, counts)


@pytest.mark.parametrize(("samples", "classes"), [(300, 2), (301, 10), (200, 1000)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_classification_equals_the_metric_for_larger_tables(samples, classes, dtype):
    probs, labels = softmax_table(samples, classes, seed=samples)
    check_classification(probs.to(dtype), labels, BOOTSTRAP.counts(samples))


@settings(max_examples=50, deadline=None)
@given(id_scores=SCORES, ood_scores=SCORES, seed=st.integers(0, 1000))
def test_detection_equals_the_metric_of_the_samples_drawn(id_scores, ood_scores, seed):
    bootstrap = Bootstrap(resamples=6, seed=seed)
    a, b = tensors(id_scores, ood_scores)
    check_detection(a, b, bootstrap.counts(len(a), stream="id"), bootstrap.counts(len(b), stream="ood"))


@pytest.mark.parametrize(("id_count", "ood_count"), [(400, 300), (150, 700)])
@pytest.mark.parametrize("digits", [1, 12])
def test_detection_equals_the_metric_for_larger_sets(id_count, ood_count, digits):
    """Either set may be the smaller one; one digit makes ties."""
    a, b = (s.round(decimals=digits) for s in random_scores(id_count, ood_count))
    check_detection(a, b, BOOTSTRAP.counts(id_count, stream="id"), BOOTSTRAP.counts(ood_count, stream="ood"))


def test_chunks_join_without_a_seam(monkeypatch):
    probs, labels = softmax_table(40, 3, seed=1)
    a, b = random_scores(40, 60)
    bootstrap = Bootstrap(resamples=25)
    id_counts, ood_counts = bootstrap.counts(40), bootstrap.counts(60)
    whole = resample_classification(probs, labels, id_counts, CLASSIFICATION)
    detected = resample_detection(a, b, id_counts, ood_counts, DETECTION)
    monkeypatch.setattr("regmixup.metrics.bootstrap._CHUNK", 200)
    for name, values in resample_classification(probs, labels, id_counts, CLASSIFICATION).items():
        torch.testing.assert_close(values, whole[name], rtol=1e-13, atol=1e-13)
    for name, values in resample_detection(a, b, id_counts, ood_counts, DETECTION).items():
        torch.testing.assert_close(values, detected[name], rtol=1e-13, atol=1e-13)


def test_every_sample_once_is_the_value_itself():
    probs, labels = softmax_table(500, 7, seed=2)
    once = Counts(torch.ones(1, 500, dtype=torch.uint8))
    for name, values in resample_classification(probs, labels, once, CLASSIFICATION).items():
        assert float(values) == pytest.approx(CLASSIFICATION[name].value(probs, labels), abs=1e-9)


def test_arrays_are_resampled_as_tensors_and_classwise_ece_needs_the_table():
    probs, labels = softmax_table(20, 3, seed=4)
    counts = Bootstrap(resamples=5).counts(20)
    found = resample_classification(probs.numpy(), labels.numpy(), counts, CLASSIFICATION)
    for name, values in resample_classification(probs, labels, counts, CLASSIFICATION).items():
        assert torch.equal(found[name], values)
    outcomes = outcomes_of(probs, labels, terms=True)
    with pytest.raises(ValueError, match=r"classwise_ece must be resampled with probs \(N, K\) .*, got Outcomes"):
        resample_classification(outcomes, None, counts, ["classwise_ece"])


def test_shifted_subsets_are_resampled_jointly():
    """The mean over two subsets of the same images varies as one set would: their errors are the same images."""
    probs, labels = softmax_table(400, 3, seed=3)
    counts = Bootstrap(resamples=400).counts(400)
    one = resample_classification(probs, labels, counts, ["accuracy"])["accuracy"]
    two = resample_classification(probs.flip(1), 2 - labels, counts, ["accuracy"])["accuracy"]
    assert torch.equal((one + two) / 2, one)


def test_an_impossible_label_makes_only_the_resamples_that_drew_it_infinite():
    probs = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    counts = Counts(torch.tensor([[2, 0], [1, 1], [0, 2]], dtype=torch.uint8))
    found = resample_classification(probs, torch.tensor([1, 0]), counts, ["nll"])["nll"]
    assert found.tolist() == [math.inf, math.inf, pytest.approx(math.log(2))]


def test_arguments_are_checked():
    probs, labels = softmax_table(5, 3, seed=4)
    with pytest.raises(ValueError, match="unknown metric 'eec': did you mean 'ece'"):
        resample_classification(probs, labels, BOOTSTRAP.counts(5), ["eec"])
    with pytest.raises(ValueError, match="counts must be of as many samples as probs, 5, got 6"):
        resample_classification(probs, labels, BOOTSTRAP.counts(6), ["ece"])
    a, b = random_scores(5, 6)
    with pytest.raises(ValueError, match="unknown metric 'auprc': did you mean 'aupr'"):
        resample_detection(a, b, BOOTSTRAP.counts(5), BOOTSTRAP.counts(6), ["auprc"])
    with pytest.raises(ValueError, match="ood_counts must be of as many samples as ood_scores, 6, got 5"):
        resample_detection(a, b, BOOTSTRAP.counts(5), BOOTSTRAP.counts(5), ["auroc"])
    with pytest.raises(ValueError, match="as many resamples, got 6 and 7"):
        resample_detection(a, b, BOOTSTRAP.counts(5), Bootstrap(resamples=7).counts(6), ["auroc"])


def test_every_metric_prefers_the_better_predictions():
    """Right against wrong, both sure; scores of OOD images and of errors in the right order and reversed."""
    labels = torch.arange(4) % 2
    good = torch.nn.functional.one_hot(labels, 2).double()
    up, wrong = torch.arange(8.0), torch.arange(8) > 3
    values = {
        name: (metric.value(good, labels), metric.value(1 - good, labels)) for name, metric in CLASSIFICATION.items()
    }
    values |= {name: (metric.value(up[:4], up[4:]), metric.value(up[4:], up[:4])) for name, metric in DETECTION.items()}
    values |= {name: (metric(up, ~wrong), metric(-up, ~wrong)) for name, metric in SELECTIVE.items()}
    assert {name: one > other for name, (one, other) in values.items()} == {n: higher_is_better(n) for n in values}
