"""Samples in order, and: every value of a weighted metric is that of the samples written out as often as they count."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.metrics.bootstrap import Bootstrap, resampled
from regmixup.metrics.calibration import CLASSIFICATION, ece, nll
from regmixup.metrics.detection import DETECTION, ScorePair, auroc
from regmixup.metrics.fisher import fisher_criterion
from regmixup.metrics.outcomes import Outcomes
from regmixup.metrics.selective import SELECTIVE, aurc
from regmixup.types import higher_is_better
from tests.metrics.test_calibration import classified, softmax_table
from tests.metrics.test_detection import SCORES, random_scores, tensors

BOOTSTRAP = Bootstrap(resamples=6)
# The root of a difference that may round to either side of 0 has half the digits.
TOLERANCE = {"debiased_ece": 1e-7}


def check_classification(probs, labels, counts):
    found = resampled(CLASSIFICATION, Outcomes.of(probs, labels, terms=True).weighted, counts)
    assert list(found) == list(CLASSIFICATION)
    for name, values in found.items():
        assert values.dtype == torch.float64
        for value, times in zip(values.tolist(), counts.long(), strict=True):
            drawn = probs.repeat_interleave(times, dim=0), labels.repeat_interleave(times)
            expected = CLASSIFICATION[name](*drawn)
            assert value == pytest.approx(expected, abs=TOLERANCE.get(name, 1e-12)), name


def check_detection(a, b, id_counts, ood_counts):
    found = resampled(DETECTION, ScorePair.of(a, b).weighted, id_counts, ood_counts)
    assert list(found) == list(DETECTION)
    for name, values in found.items():
        assert values.dtype == torch.float64
        for value, id_times, ood_times in zip(values.tolist(), id_counts.long(), ood_counts.long(), strict=True):
            expected = DETECTION[name](a.repeat_interleave(id_times), b.repeat_interleave(ood_times))
            # Everything but average precision is a quotient of whole numbers.
            assert value == (pytest.approx(expected, abs=1e-12) if "aupr" in name else expected), name


@settings(max_examples=25, deadline=None)
@given(data=classified(), seed=st.integers(0, 1000))
def test_classification_equals_the_metric_of_the_samples_drawn(data, seed):
    """Ties, exact 0 and 1, empty bins, one class, infinite likelihoods, from one sample on."""
    check_classification(*data, Bootstrap(resamples=6, seed=seed).counts(len(data[1])))


@settings(max_examples=50, deadline=None)
@given(id_scores=SCORES, ood_scores=SCORES, seed=st.integers(0, 1000))
def test_detection_equals_the_metric_of_the_samples_drawn(id_scores, ood_scores, seed):
    bootstrap = Bootstrap(resamples=6, seed=seed)
    a, b = tensors(id_scores, ood_scores)
    check_detection(a, b, bootstrap.counts(len(a), stream="id"), bootstrap.counts(len(b), stream="ood"))


@pytest.mark.parametrize("distinct", [False, True], ids=["ties", "no ties"])
def test_selection_equals_the_metric_of_the_samples_drawn(distinct):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(40, generator=generator) if distinct else torch.randint(5, (40,), generator=generator).double()
    correct = torch.rand(40, generator=generator) < 0.7
    counts = Bootstrap(resamples=30).counts(40)
    drawn = [(scores.repeat_interleave(c), correct.repeat_interleave(c)) for c in counts.long()]
    pair = ScorePair.of_errors(scores, correct)
    for name, values in resampled(SELECTIVE, pair.weighted, counts[:, correct], counts[:, ~correct]).items():
        assert values.tolist() == pytest.approx([SELECTIVE[name](*sample) for sample in drawn], abs=1e-12), name


def test_chunks_join_without_a_seam(monkeypatch):
    probs, labels = softmax_table(40, 3, seed=1)
    a, b = random_scores(40, 60)
    bootstrap = Bootstrap(resamples=25)
    id_counts, ood_counts = bootstrap.counts(40), bootstrap.counts(60)

    def both():
        outcomes = resampled(CLASSIFICATION, Outcomes.of(probs, labels, terms=True).weighted, id_counts)
        return outcomes | resampled(DETECTION, ScorePair.of(a, b).weighted, id_counts, ood_counts)

    whole = both()
    monkeypatch.setattr("regmixup.metrics.bootstrap._PIECE", 200)
    for name, values in both().items():
        torch.testing.assert_close(values, whole[name], rtol=1e-13, atol=1e-13)


def test_an_impossible_label_makes_only_the_resamples_that_drew_it_infinite():
    outcomes = Outcomes.of(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([1, 0]), terms=True)
    found = nll(outcomes.weighted(torch.tensor([[2, 0], [1, 1], [0, 2]])))
    assert found.tolist() == [math.inf, math.inf, pytest.approx(math.log(2))]


def test_the_second_argument_is_asked_for_by_name():
    probs, _ = softmax_table(5, 3, seed=4)
    for metric, first, name in (
        (ece, probs, "labels"),
        (auroc, probs[:, 0], "ood_scores"),
        (aurc, probs[:, 0], "correct"),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be given"):
            metric(first)


def test_every_metric_takes_arrays_that_pytorch_cannot_hold():
    probs, labels = (tensor.numpy() for tensor in softmax_table(20, 3, seed=4))
    scores, correct = probs.max(axis=1), probs.argmax(axis=1) == labels
    for metric, *arrays in (
        (ece, probs, labels),
        (auroc, scores[:8], scores[8:]),
        (aurc, scores, correct),
        (fisher_criterion, probs, labels),
    ):
        backwards = (array[::-1] for array in arrays)
        assert metric(*backwards) == pytest.approx(metric(*(torch.from_numpy(array) for array in arrays)))
    with pytest.raises(ValueError, match=r"^id_scores must be a tensor"):
        auroc("high", scores)


def test_every_metric_prefers_the_better_predictions():
    """Right against wrong, both sure; scores of OOD images and of errors in the right order and reversed."""
    labels = torch.arange(4) % 2
    good = torch.nn.functional.one_hot(labels, 2).double()
    up, wrong = torch.arange(8.0), torch.arange(8) > 3
    values = {name: (metric(good, labels), metric(1 - good, labels)) for name, metric in CLASSIFICATION.items()}
    values |= {name: (metric(up[:4], up[4:]), metric(up[4:], up[:4])) for name, metric in DETECTION.items()}
    values |= {name: (metric(up, ~wrong), metric(-up, ~wrong)) for name, metric in SELECTIVE.items()}
    assert {name: one > other for name, (one, other) in values.items()} == {n: higher_is_better(n) for n in values}
