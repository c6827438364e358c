"""Sets that cover some of the classes, and sets that were rebuilt: evaluated as stated, and named so."""

import pytest
import torch

from regmixup.evaluation.class_subset import restrict_pair, restrict_predictions
from regmixup.evaluation.curves import COVERAGE, examples, score_curves
from regmixup.evaluation.evaluate import evaluate
from regmixup.evaluation.set_scores import score_sets
from regmixup.types import Predictions

# Four classes; the subset is {1, 3}. Class 0 has the largest logit everywhere.
LOGITS = torch.tensor([[9.0, 1.0, 0.0, 0.0], [9.0, 0.0, 0.0, 1.0], [9.0, 0.0, 0.0, 1.0]])
SUBSET = {"class_subset": "1,3"}
TEST = Predictions(torch.eye(4) * 5, torch.arange(4), dataset="test")


def accuracy(rows, dataset):
    return [r.value for r in rows if (r.dataset, r.metric, r.corruption) == (dataset, "accuracy", "mean")]


def test_only_the_subsets_logits_compete():
    shifted = Predictions(LOGITS, torch.tensor([1, 3, 1]), dataset="imagenet-a/test", info=SUBSET)
    rows = evaluate(TEST, shift=[shifted])
    assert accuracy(rows, "imagenet-a/test (2 classes)") == [pytest.approx(2 / 3)]


def test_the_scores_that_order_a_test_set_of_some_classes_see_only_their_logits():
    """Of {1, 3} alone the right prediction is the surer one; the logit of class 0 says the opposite."""
    logits = torch.tensor([[4.0, 4.0, 0.0, 0.0], [9.0, 0.0, 0.0, 1.0]])
    test = Predictions(logits, torch.tensor([1, 1]), dataset="imagenet-a/test", info=SUBSET)
    found = {row.score: row.value for row in evaluate(test, bootstrap=None) if row.metric == "aurc"}
    assert found["entropy"] == found["max_logit"] == 0.25  # no error at coverage 1/2, one at 1


def test_an_ood_set_of_some_classes_is_compared_with_test_images_of_these_classes():
    ood = Predictions(torch.zeros(5, 4), torch.full((5,), 1), dataset="imagenet-o/test", info=SUBSET)
    id_part, ood_part = restrict_pair(TEST, ood)
    assert id_part.logits.tolist() == [[5.0, 0.0], [0.0, 5.0]]
    assert ood_part.logits.shape == (5, 2)
    rows = [r for r in evaluate(TEST, ood=[ood]) if r.metric == "auroc"]
    assert {r.dataset for r in rows} == {"imagenet-o/test (2 classes)"}
    assert all(r.value == 1.0 for r in rows if r.score == "entropy")


def test_an_ood_set_is_compared_with_a_test_set_of_some_classes_by_the_logits_of_these():
    test = Predictions(LOGITS, torch.tensor([1, 3, 1]), dataset="imagenet-r/test", info=SUBSET)
    ood = Predictions(torch.tensor([[0.0, 2.0, 9.0, 2.0]]), torch.tensor([-1]), dataset="svhn/test")
    inside, outside = restrict_pair(test, ood)
    assert inside.logits.tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    assert outside.logits.tolist() == [[2.0, 2.0]]
    rows = evaluate(test, ood=[ood], bootstrap=None)
    assert {(r.dataset, r.value) for r in rows if (r.metric, r.score) == ("auroc", "entropy")} == {
        ("svhn/test (2 classes)", 1.0)
    }


NAMES = ("zero", "one", "two", "three")


def look(places):
    return [torch.zeros(1, 1, 1) for _ in places]


def exhibits(test, ood=()):
    looks = {one.dataset: look for one in (test, *ood)}
    shown = examples(test, ood, score_sets(test, ood), looks, classes=NAMES)["sets"]
    return [(one["kind"], one["count"], [(i["said"], i["truth"]) for i in one["images"]]) for one in shown]


def test_examples_and_risk_of_a_test_set_of_some_classes_are_those_that_its_rows_count():
    """Of {1, 3} one of three answers is wrong; among all classes all are, and all say class 0."""
    test = Predictions(LOGITS, torch.tensor([1, 3, 1]), dataset="imagenet-r/test", info=SUBSET)
    errors, _ = exhibits(test)
    assert errors == ("errors", 1, [("three", "one")])
    logits = torch.tensor([[4.0, 4.0, 0.0, 0.0], [9.0, 0.0, 0.0, 1.0]])  # the right one is surer of {1, 3} alone
    test = Predictions(logits, torch.tensor([1, 1]), dataset="imagenet-r/test", info=SUBSET)
    risk = score_curves(test, score_sets(test, []))["entropy"]["risk"]
    assert (risk[COVERAGE.index(0.5)], risk[-1]) == (0.0, 0.5)


def test_examples_of_an_ood_set_of_some_classes_are_compared_with_test_images_of_these():
    """Image 2, of class 0, is unsure and no image of {1, 3}: with it the threshold would accept the OOD image, too."""
    test = Predictions(
        torch.eye(4)[[1, 3, 0]] * torch.tensor([[5.0], [5.0], [0.0]]), torch.tensor([1, 3, 0]), dataset="test"
    )
    sure, unsure = torch.tensor([[0.0, 9.0, 0.0, 0.0]]), torch.tensor([[9.0, 0.0, 0.0, 0.0]])
    ood = Predictions(torch.cat([unsure, sure]), torch.full((2,), 1), dataset="imagenet-o/test", info=SUBSET)
    assert exhibits(test, [ood])[2] == ("accepted", 1, [("one", "")])


def test_sets_of_all_classes_are_left_as_they_are():
    ood = Predictions(torch.zeros(5, 4), torch.full((5,), -1), dataset="svhn/test")
    assert restrict_pair(TEST, ood) == (TEST, ood)
    assert restrict_predictions(TEST) is TEST


def test_rebuilt_sets_say_so_in_every_row():
    shifted = Predictions(LOGITS, torch.tensor([1, 3, 1]), dataset="cifar10-c/fog/3", info={"rebuilt": "true"})
    rows = evaluate(TEST, shift=[shifted])
    assert {r.dataset for r in rows} == {"test", "cifar10-c (rebuilt)"}
