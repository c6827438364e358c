"""Two models on the same images: paired differences, and refusals of images that are not the same."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from regmixup.evaluation.compare import check_same_images, measure_models
from regmixup.evaluation.evaluate import ModelPredictions
from regmixup.metrics.bootstrap import Bootstrap
from regmixup.metrics.calibration import ece
from regmixup.metrics.outcomes import Outcomes
from regmixup.metrics.scores import entropy
from regmixup.types import Predictions, Quantity
from tests.references import metrics as reference

BOOTSTRAP = Bootstrap(resamples=600)


def predicted(seed, *, count=400, classes=4, strength=2.0, dataset="toy/test", labels_seed=0, role=""):
    """A model whose logits point at the label; models of one labels_seed see the same images, in part alike."""
    shared = np.random.default_rng(labels_seed)
    labels = shared.integers(classes, size=count)
    common = shared.normal(size=(count, classes))
    own = np.random.default_rng(100 + seed).normal(size=(count, classes))
    logits = strength * np.eye(classes)[labels] + common + 0.5 * own
    return Predictions(torch.from_numpy(logits), torch.from_numpy(labels), dataset=dataset, role=role)


def far(seed, count=300):
    found = predicted(seed, count=count, strength=0.0, dataset="far", labels_seed=7)
    return replace(found, labels=torch.full((count,), -1))


@pytest.fixture(scope="module")
def pair():
    first = ModelPredictions(name="first", test=predicted(1, strength=2.4), ood=[far(1)])
    second = ModelPredictions(name="second", test=predicted(2), ood=[far(2)])
    return first, second


@pytest.fixture(scope="module")
def measured(pair):
    return measure_models(*pair, bootstrap=BOOTSTRAP)


def place(metric, *, dataset="toy/test", score=""):
    return Quantity(dataset, metric, score=score)


def test_the_interval_of_accuracy_is_that_of_the_difference_per_image(pair, measured):
    """The mean of n differences d in {-1, 0, 1} has the standard error std(d) / sqrt(n)."""
    right = [(one.test.logits.argmax(1) == one.test.labels).double() for one in pair]
    d = right[0] - right[1]
    found = measured.differences[place("accuracy")]
    assert measured.differences[place("nll")].better is True  # smaller
    assert measured.differences[place("nll")].value < 0
    assert found.value == pytest.approx(float(d.mean()), abs=1e-12)
    half = 1.96 * float(d.std()) / math.sqrt(len(d))
    assert found.high - found.low == pytest.approx(2 * half, rel=0.08)
    assert found.better is True
    # Unpaired, it would be far wider: the models share most of what makes an image hard.
    alone = math.hypot(*(1.96 * float(one.std()) / math.sqrt(len(d)) for one in right))
    assert half < 0.8 * alone


def test_the_interval_of_auroc_is_delongs(pair, measured):
    """Of paired scores, the variance of the difference is that of the differences of the structural components."""
    scores = [(entropy(one.test.logits), entropy(one.ood[0].logits)) for one in pair]
    parts = [reference.delong_components(*scored) for scored in scores]
    difference = parts[0][1].mean() - parts[1][1].mean()
    variance = sum((first - second).var(ddof=1) / len(first) for first, second in zip(*parts, strict=True))
    half = 1.96 * math.sqrt(variance)
    found = measured.differences[place("auroc", dataset="far", score="entropy")]
    assert found.value == pytest.approx(difference, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((difference - half, difference + half), abs=0.16 * half)


def test_the_interval_of_a_calibration_error_lies_about_the_measured_difference(pair, measured):
    """Resampling makes both errors larger, not equally so; the interval is moved back, and may hold negative values."""
    found = measured.differences[place("ece")]
    probs = [one.test.logits.softmax(1) for one in pair]
    assert found.value == pytest.approx(ece(probs[0], pair[0].test.labels) - ece(probs[1], pair[1].test.labels))
    counts = BOOTSTRAP.counts(400)
    values = [ece(Outcomes.of(p, pair[0].test.labels).weighted(counts)) for p in probs]
    apart = values[0] - values[1]
    moved = BOOTSTRAP.interval(apart + (found.value - apart.mean()))
    assert (found.low, found.high) == pytest.approx((moved.low, moved.high), abs=1e-12)


def test_a_model_does_not_differ_from_itself(pair):
    same = measure_models(pair[0], replace(pair[0], name="again"), bootstrap=Bootstrap(resamples=50))
    assert len(same.differences) > 50
    found = {(d.value, d.low, d.high, d.better) for d in same.differences.values()}
    assert found == {(0.0, 0.0, 0.0, None)}


def test_rows_are_those_of_each_model_alone(pair, measured):
    alone = measure_models(pair[1], bootstrap=BOOTSTRAP)
    assert [replace(row, method="") for row in measured.rows[1]] == list(alone.rows[0])
    assert {row.method for row in measured.rows[1]} == {"second"}


def test_without_a_bootstrap_there_are_differences_without_intervals(pair):
    found = measure_models(*pair, bootstrap=None).differences[place("accuracy")]
    assert (found.low, found.high, found.better) == (None, None, None)
    assert found.value > 0


def test_sets_are_matched_by_name_and_else_in_order(pair):
    near = replace(far(5), dataset="near")
    first = replace(pair[0], ood=[far(1), near])
    quick = Bootstrap(resamples=20)
    swapped = measure_models(first, replace(pair[1], ood=[near, far(2)]), bootstrap=quick)
    assert [one.dataset for one in swapped.models[1].ood] == ["far", "near"]
    assert swapped.differences[place("auroc", dataset="near", score="entropy")].value != 0
    renamed = [replace(one, dataset=f"b-{one.dataset}") for one in (far(2), near)]
    by_order = measure_models(first, replace(pair[1], ood=renamed), bootstrap=quick)
    assert by_order.differences == swapped.differences
    assert not any(
        where.dataset == "far"
        for where in measure_models(pair[0], replace(pair[1], ood=()), bootstrap=None).differences
    )
    with pytest.raises(ValueError, match="both models must have the same OOD sets, got 2 and 1"):
        measure_models(first, pair[1])


def test_other_images_are_refused_in_words(pair):
    test = pair[0].test
    turned = replace(test, labels=test.labels.roll(1))
    with pytest.raises(
        ValueError,
        match=r"toy/test must be the same images .* for both models: \d+ of 400 labels differ, the first in line \d+",
    ):
        measure_models(pair[0], ModelPredictions(name="b", test=turned))
    with pytest.raises(ValueError, match=r"their logits are \(400, 4\) and \(400, 5\)"):
        check_same_images(test, predicted(0, classes=5))
    with pytest.raises(ValueError, match="fingerprints aaa and bbb"):
        check_same_images(replace(test, info={"data": "aaa"}), replace(test, info={"data": "bbb"}))
    check_same_images(replace(test, info={"data": "aaa"}), test)  # where one does not tell, labels decide
    ordered, swapped = (replace(test, info={"ids": f"filename:{order}"}) for order in ("aaa", "bbb"))
    check_same_images(ordered, ordered)
    with pytest.raises(ValueError, match="their columns 'filename' differ; sort both files by it"):
        check_same_images(ordered, swapped)


def test_models_without_names_get_some(pair):
    bare = [replace(model, name="") for model in pair]
    assert [one.name for one in measure_models(*bare, bootstrap=None).models] == ["A", "B"]
