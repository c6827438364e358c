"""The figures' data against exact curves, and against the predictions they come from."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import roc_curve as sklearn_roc

from regmixup.evaluation import curves
from regmixup.evaluation.set_scores import score_sets
from regmixup.metrics.calibration import ece
from regmixup.metrics.scores import SCORES, score_all
from regmixup.metrics.selective import risk_coverage
from regmixup.posthoc import as_given
from regmixup.types import Predictions


def toy(dataset, size, seed, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (size,), generator=generator)
    logits = scale * torch.randn(size, 5, generator=generator) + 2 * torch.nn.functional.one_hot(labels, 5)
    return Predictions(logits, labels, dataset=dataset)


TEST, FAR, NEAR = toy("toy/test", 500, 0), toy("far/test", 400, 1, scale=0.7), toy("near/test", 300, 2)
FOUND = curves.score_curves(TEST, score_sets(TEST, [FAR, NEAR]))


def test_roc_curves_pass_through_those_of_scikit_learn():
    inside, outside = SCORES["entropy"](TEST.logits), SCORES["entropy"](FAR.logits)
    truth = np.r_[np.zeros(len(inside)), np.ones(len(outside))]
    fpr, tpr, _ = sklearn_roc(truth, np.r_[inside, outside], drop_intermediate=False)
    # Where it is vertical, the highest point of the curve counts.
    exact = [np.interp(at, fpr, tpr) if at not in fpr else tpr[fpr == at].max() for at in curves.FPR]
    assert FOUND["entropy"]["roc"]["far/test"] == pytest.approx(exact, abs=1e-5)
    assert FOUND["entropy"]["roc"]["far/test"][-1] == 1.0


def test_risk_at_full_coverage_is_the_error_and_elsewhere_that_of_the_surest():
    correct = TEST.logits.argmax(dim=1) == TEST.labels
    risk = FOUND["entropy"]["risk"]
    assert risk[-1] == pytest.approx(1 - float(correct.double().mean()), abs=1e-5)
    order = SCORES["entropy"](TEST.logits).argsort()
    for index, coverage in enumerate(curves.COVERAGE):
        kept = correct[order[: round(coverage * 500)]]
        assert risk[index] == pytest.approx(1 - float(kept.double().mean()), abs=1e-5)


def test_tied_samples_are_accepted_together():
    scores, correct = torch.tensor([0.0, 1.0, 1.0, 1.0]), torch.tensor([True, False, True, True])
    assert curves.risk_at(scores, correct, grid=(0.25, 0.5, 1.0)) == [0.0, 0.25, 0.25]
    assert len(risk_coverage(scores, correct).risk) == 2


def test_histograms_count_every_sample_of_every_set_once():
    assert list(FOUND) == list(score_all(TEST))
    for found in FOUND.values():
        assert {name: sum(counts) for name, counts in found["counts"].items()} == {
            "toy/test": 500,
            "far/test": 400,
            "near/test": 300,
        }


def test_an_outlier_counts_in_the_last_bin_and_does_not_stretch_the_others():
    one_far = replace(NEAR, logits=torch.cat([NEAR.logits[:-1], torch.full((1, 5), -1e6)]))
    test = replace(TEST, logits=TEST.logits.repeat(3, 1), labels=TEST.labels.repeat(3))
    found = curves.score_curves(test, score_sets(test, [one_far]))
    assert found["max_logit"]["range"][1] < 10
    assert found["max_logit"]["counts"]["near/test"][-1] >= 1


def test_a_score_that_is_the_same_everywhere_has_a_histogram_too():
    flat = Predictions(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]), dataset="flat")
    found = curves.score_curves(flat, score_sets(flat, [replace(flat, dataset="other")]))["entropy"]
    assert found["range"] == pytest.approx([math.log(3) - 0.5, math.log(3) + 0.5])
    assert sum(found["counts"]["other"]) == 4


def test_images_of_equal_confidence_share_a_bin_of_equal_mass():
    """So that the order of the files decides nothing."""
    confidence = torch.tensor([0.6] * 30 + [0.9] * 30)
    probs = torch.stack([confidence, 1 - confidence], dim=1)
    bins = curves.equal_mass_reliability(probs, torch.tensor([0, 1] * 30))
    assert bins.count.tolist() == [30, 30, 0]
    assert bins.accuracy[:2].tolist() == [0.5, 0.5]
    assert bins.confidence[:2].tolist() == pytest.approx([0.6, 0.9])


def test_reliability_bins_give_the_ece_back():
    versions = {"none": TEST, "temperature": as_given(TEST, 2.0)}
    found = curves.reliability_bins(versions)
    for name, scale in (("none", 1.0), ("temperature", 2.0)):
        bins = found[name]
        gaps = [
            count * abs(confidence - accuracy)
            for count, confidence, accuracy in zip(bins["count"], bins["confidence"], bins["accuracy"], strict=True)
            if count
        ]
        assert sum(gaps) / 500 == pytest.approx(ece((TEST.logits / scale).softmax(dim=1), TEST.labels), abs=1e-5)
        assert all(value is None for count, value in zip(bins["count"], bins["accuracy"], strict=True) if not count)


CERTAIN, UNIFORM = [1000.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]
HALF = [0.0, 0.0, -1000.0, -1000.0]  # entropy log 2 = half of log 4


def path_predictions(rows, pairs, lambdas):
    logits = torch.tensor(rows, dtype=torch.float64)
    info = {"pairs": str(pairs), "lambdas": str(lambdas)}
    return Predictions(logits, torch.zeros(len(rows), dtype=torch.int64), dataset="path:toy/test", info=info)


def test_known_logits_give_the_known_histogram():
    """Two pairs, three lambdas, pair after pair: (certain, uniform, certain) and (certain, half, half)."""
    predictions = path_predictions([CERTAIN, UNIFORM, CERTAIN, CERTAIN, HALF, HALF], pairs=2, lambdas=3)
    profile = curves.path_curves(predictions, pairs=1, num_bins=4)
    # Bins [lo, hi) of quarters of log 4, log 4 in the last: log 2 is the lower end of the third.
    assert profile["counts"] == [[2, 0, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]
    assert profile["top"] == math.log(4)
    assert profile["mean"] == [0.0, round(1.5 * math.log(2), 5), round(0.5 * math.log(2), 5)]
    assert profile["pairs"] == [[0.0, round(math.log(4), 5), 0.0]]


def test_uniform_predictions_fall_in_the_last_bin_although_rounding_may_exceed_log_k():
    for classes in (3, 7, 10, 100):
        predictions = path_predictions([[3.0] * classes] * 4, pairs=2, lambdas=2)
        assert [bins[-1] for bins in curves.path_curves(predictions, pairs=1)["counts"]] == [2, 2]


def test_an_image_is_shown_alike_as_tensor_and_array_in_bytes_and_from_0_to_1():
    levels = torch.arange(48, dtype=torch.uint8).reshape(3, 4, 4)
    array = levels.permute(1, 2, 0).numpy()
    images = (levels, levels / 255, array, array / np.float32(255))
    assert len({curves.thumbnail(image) for image in images}) == 1


def test_a_grey_image_is_shown_alike_with_and_without_a_dimension_for_its_channel():
    array = np.arange(16, dtype=np.uint8).reshape(4, 4)
    images = (array, array[:, :, None], array[:, :, None] / np.float32(255), torch.from_numpy(array)[None])
    assert len({curves.thumbnail(image) for image in images}) == 1


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr"])
def test_a_small_picture_in_colours_that_png_lacks_is_shown_in_rgb(mode):
    picture = Image.new("RGB", (8, 8), (200, 40, 90)).convert(mode)
    assert curves.thumbnail(picture) == curves.thumbnail(picture.convert("RGB"))
