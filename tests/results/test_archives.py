"""Archives are complete, small, and other people's code finds the same numbers in them."""

import archives
import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from regmixup.study.archive import outcomes_path
from regmixup.study.plan import load_study

from .archived import ARCHIVED, ARCHIVES, WITH_LOGITS, WITH_OUTCOMES, rows_of, write_evaluation


def test_the_first_seed_has_its_outcomes():
    """Later archives have those of every seed."""
    for name, found in ARCHIVED.items():
        study = load_study(name)
        for planned, folder in found:
            seeds = study.seeds_of.get(planned.method, study.seeds)
            first = study.seeds[0] if study.seeds[0] in seeds else seeds[0]
            if planned.config.seed == first and planned.batch_norm == "trained":
                assert outcomes_path(folder, planned.stem).is_file(), folder


def test_a_fingerprint_names_one_training():
    """Two studies may archive a run, each with its evaluation. One that is trained again for the second replaces the
    first: its numbers differ in their last digits."""
    trainings = {}
    for _, folder in (param.values for param in ARCHIVES):
        history = (folder / "history.jsonl").read_bytes()
        assert trainings.setdefault(folder.name, history) == history, f"{folder} was trained twice"


def test_tables_take_no_number_that_was_measured_against_a_part_of_the_test_images(tmp_path, monkeypatch):
    """`scores` measures networks of `reliable-confirm` on OpenOOD's 9,000 test images, under the same names."""
    lists = ("cifar100/openood-cifar10", "tiny-imagenet/openood-cifar10")
    places = [(name, "max_probability") for name in (*lists, "svhn/test")]
    whole = dict(zip(places, (0.88, 0.90, 0.93), strict=True))
    write_evaluation(tmp_path / "reliable-confirm" / "one", "regmixup", "cifar10/test", whole)
    of_part = dict.fromkeys(places, 0.5) | {(lists[0], "knn"): 0.6, (lists[1], "knn"): 0.8}
    write_evaluation(tmp_path / "scores" / "one", "regmixup", "cifar10/openood-test", of_part)
    write_evaluation(tmp_path / "reliable-search" / "two", "pixmix(pictures=('a', 'b'))", "cifar10/val-10", {})
    monkeypatch.setattr(archives, "RESULTS", tmp_path)
    ((setting, values),) = archives.load.__wrapped__("*").items()
    assert setting == archives.Setting("cifar10/train", "resnet18", 100, "regmixup")
    assert values["SVHN AUROC by MSP"] == {10: pytest.approx(93)}
    assert values["near-OOD list AUROC by MSP"] == {10: pytest.approx(89)}
    assert "near-OOD AUROC by MSP" not in values
    assert archives.load.__wrapped__("reliable-confirm").keys() == {setting}
    assert "near-OOD list AUROC by kNN" not in values
    ((_, values),) = archives.load.__wrapped__("scores").items()
    assert values["SVHN AUROC by MSP"] == values["near-OOD list AUROC by MSP"] == {10: pytest.approx(50)}
    assert values["near-OOD list AUROC by kNN"] == {10: pytest.approx(70)}
    assert "accuracy" not in values


def test_a_method_keeps_a_value_with_a_comma():
    label = "pixmix(pictures=('gratings', 'perlin'), epochs=97, bn=refreshed)"
    assert archives.method_of(label) == ("pixmix(pictures=('gratings', 'perlin'))", "refreshed")


def gaps(confidence, right):
    """Return right minus confidence, summed in each of fifteen bins of equal width, closed on the right."""
    bins = np.clip(np.ceil(15 * confidence) - 1, 0, 14).astype(int)
    return np.array([(right - confidence)[bins == index].sum() for index in range(15)])


def float16_calibration_error(uncertainty, right):
    """Return the ECE of float16 uncertainties, and by how much that of the exact ones may differ."""
    confidence, rounding = 1 - uncertainty.astype(float), np.spacing(uncertainty).astype(float) / 2
    found, moved = gaps(confidence, right), abs(right - confidence)
    at_edge = abs(confidence[:, None] - np.arange(1, 15) / 15) <= rounding[:, None]  # it may have been in the next bin
    doubt = moved @ at_edge
    sign = np.where(abs(found) > np.append(doubt, 0) + np.append(0, doubt) + rounding.sum(), np.sign(found), 0)
    matters = at_edge @ ((sign[1:] == 0) | (sign[1:] != sign[:-1]))  # gaps of one sign sum to the same in either bin
    return abs(found).sum() / len(right), (rounding + 2 * matters * moved).mean()


def auroc_of_float16(lower, higher):
    """Return the AUROC of rounded scores, and by how much that of the exact ones may differ: half of the tied pairs."""
    values, place = np.unique(np.concatenate([lower, higher]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(values)) for part in np.split(place, [len(lower)])]
    tied = (counts[0] * counts[1]).sum() / (len(lower) * len(higher))
    found = roc_auc_score([0] * len(lower) + [1] * len(higher), np.concatenate([lower, higher]))
    return found, tied / 2 + 1e-9


@pytest.mark.parametrize(("planned", "folder"), WITH_OUTCOMES)
def test_rows_agree_with_what_numpy_and_scikit_learn_find_in_the_outcomes(planned, folder):
    """Accuracy exactly; the others to what float16 leaves of a score: ties, and images at the edge of a bin."""
    rows = rows_of(planned, folder)
    outcomes = np.load(folder / f"outcomes-{planned.stem}.npz")
    sets = planned.evaluate
    correct = outcomes[f"{sets.test}:correct"]
    accuracy = correct.mean()
    assert rows[sets.test, "accuracy", ""].value == pytest.approx(accuracy, abs=1e-12)
    most = 1e-2 if planned.method == "logitnorm" else 5e-4  # float16 merges many scores of logits as small as its own
    for name, score in (("uncertainty", "max_probability"), ("dempster_shafer", "dempster_shafer")):
        inside = outcomes[f"{sets.test}:{name}"].astype(float)
        failures, doubt = auroc_of_float16(inside[correct], inside[~correct])
        assert abs(rows[sets.test, "failure_auroc", score].value - failures) <= doubt
        generalised = (1 - failures) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
        assert abs(rows[sets.test, "augrc", score].value - generalised) <= doubt * accuracy * (1 - accuracy)
        assert doubt < most
        for other in sets.ood:
            found, doubt = auroc_of_float16(inside, outcomes[f"{other}:{name}"].astype(float))
            assert abs(rows[other, "auroc", score].value - found) <= doubt, other
            assert doubt < most
    found, allowed = float16_calibration_error(outcomes[f"{sets.test}:uncertainty"], correct)
    assert allowed < 1e-3
    assert rows[sets.test, "ece", ""].value == pytest.approx(found, abs=allowed)


def recomputed(logits, sets):
    """Return the headline metrics of stored logits, by NumPy, SciPy and scikit-learn alone."""
    values = {name: logits[f"{name}:logits"].astype(float) for name in (sets.test, *sets.ood)}
    labels, probs = logits[f"{sets.test}:labels"], softmax(values[sets.test], axis=1)
    right = probs.argmax(1) == labels
    classes = probs.shape[1]
    scores = {
        "dempster_shafer": {name: classes / (classes + np.exp(z).sum(1)) for name, z in values.items()},
        "max_probability": {name: -softmax(z, axis=1).max(1) for name, z in values.items()},
    }
    covered = np.arange(1, len(labels) + 1)
    errors = np.cumsum(~right[np.argsort(-probs.max(1), kind="stable")])
    found = {
        (sets.test, "accuracy", ""): accuracy_score(labels, probs.argmax(1)),
        (sets.test, "nll", ""): log_loss(labels, probs, labels=range(probs.shape[1])),
        (sets.test, "ece", ""): abs(gaps(probs.max(1), right)).sum() / len(labels),
        (sets.test, "aurc", "max_probability"): (errors / covered).mean(),
        (sets.test, "augrc", "max_probability"): errors.mean() / len(labels),
        (sets.test, "failure_auroc", "max_probability"): roc_auc_score(right, probs.max(1)),
    }
    for name in sets.ood:
        outside = np.r_[np.zeros(len(labels)), np.ones(len(values[name]))]
        for score, own in scores.items():
            found[name, "auroc", score] = roc_auc_score(outside, np.r_[own[sets.test], own[name]])
    return found


@pytest.mark.parametrize(("planned", "folder"), WITH_LOGITS)
def test_rows_agree_with_what_others_code_finds_in_the_logits(planned, folder):
    """To what float16 leaves of a logit: ties, and images at the edge of a bin."""
    rows = rows_of(planned, folder)
    found = recomputed(np.load(folder / f"logits-{planned.stem}.npz"), planned.evaluate)
    assert len(found) == 6 + 2 * len(planned.evaluate.ood)
    for key, value in found.items():
        assert rows[key].value == pytest.approx(value, abs=2e-4), key


def test_some_headline_runs_have_their_logits():
    """Plain training and RegMixup at the longest training."""
    assert {one.values[0].label for one in WITH_LOGITS} >= {"dnn(epochs=200)", "regmixup(epochs=200)"}
