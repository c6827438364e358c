"""Which scores predictions allow, and all of them at once."""

from dataclasses import replace

import pytest
import torch

from regmixup.metrics.scores import (
    KNN,
    SCORES,
    available,
    fit_scores,
    mutual_information,
    registry,
    score_all,
)
from tests.metrics.scores.made_up import predictions

TRAIN, TEST = predictions(90, 0, dataset="toy/train"), predictions(40, 1)
HEADLESS = {"head_weight": None, "head_bias": None}
PLAIN = replace(TEST, features=None, **HEADLESS)
MEMBERS = torch.randn(3, 40, 3, generator=torch.Generator().manual_seed(0))
OF_CLASSES = ["mahalanobis", "mahalanobis_tied", "relative_mahalanobis", "knn"]
OF_HEAD = ["vim", "react", "ash", "scale", "fdbd", "nnguide"]
UNRECTIFIED = ["vim", "react", "fdbd", "nnguide"]


def test_the_scores_of_logits_of_any_model_are_functions():
    plain = ["dempster_shafer", "entropy", "energy", "max_probability", "max_logit", "gen", "odin", "max_logit_pnorm"]
    assert list(SCORES) == plain


@pytest.mark.parametrize(
    ("test", "train", "more"),
    [
        (PLAIN, None, []),
        (PLAIN, TRAIN, []),
        (TEST, None, []),
        (replace(PLAIN, member_logits=MEMBERS), None, ["mutual_information"]),
        (TEST, TRAIN, OF_CLASSES + OF_HEAD),
        (TEST, replace(TRAIN, features=None), []),
        (replace(TEST, **HEADLESS), TRAIN, OF_CLASSES + OF_HEAD),
        (TEST, replace(TRAIN, **HEADLESS), OF_CLASSES),
        (TEST, predictions(49, 0), OF_CLASSES[:3] + OF_HEAD),
        (TEST, predictions(9, 0), OF_CLASSES[:3] + OF_HEAD[:-1]),
        (TEST, predictions(90, 0, rectified=False), OF_CLASSES + UNRECTIFIED),
    ],
    ids=["logits alone", "no features to score", "no train set", "members", "features on both sides",
         "no features to fit on", "the head is that of the train set", "no head", "too few for kNN",
         "too few for NNGuide", "no ReLU"],
)  # fmt: skip
def test_scores_are_those_that_the_predictions_allow(test, train, more):
    assert available(test, train) == [*SCORES, *more]


def test_all_that_the_train_predictions_allow_are_fitted():
    assert list(fit_scores(TRAIN)) == [*OF_CLASSES, *OF_HEAD]
    assert fit_scores(None) == fit_scores(PLAIN) == {}
    found = score_all(TEST, fit_scores(TRAIN))
    assert torch.equal(found["knn"], KNN().fit(TRAIN.features, TRAIN.labels)(TEST.features))


class TestScoreAll:
    def test_without_fitted_scores_it_is_every_logit_score(self):
        found = score_all(TEST)
        assert list(found) == list(SCORES)
        for name, values in found.items():
            assert torch.equal(values, SCORES[name](TEST.logits))

    def test_members_add_mutual_information(self):
        found = score_all(replace(PLAIN, member_logits=MEMBERS))
        assert list(found) == [*SCORES, "mutual_information"]
        assert torch.equal(found["mutual_information"], mutual_information(MEMBERS))

    def test_fitted_scores_come_last_and_only_where_there_are_features(self):
        fitted = {"nearest": KNN(k=1).fit(TRAIN.features)}
        assert list(score_all(TEST, fitted)) == [*SCORES, "nearest"]
        assert list(score_all(PLAIN, fitted)) == list(SCORES)

    def test_own_probabilities_replace_the_softmax(self):
        probs = torch.rand(40, 3, generator=torch.Generator().manual_seed(1)).double()
        probs[:, 0] *= torch.arange(40) % 2  # with some exact zeros
        probs /= probs.sum(dim=1, keepdim=True)
        found = score_all(replace(TEST, probs=probs))
        of_probs = {
            "entropy": torch.special.entr(probs).sum(dim=1),
            "max_probability": 1 - probs.amax(dim=1),
            "gen": (probs * (1 - probs)).pow(0.1).sum(dim=1),
        }
        for name, score in SCORES.items():
            torch.testing.assert_close(found[name], of_probs.get(name, score(TEST.logits)), rtol=1e-10, atol=0)

    def test_pieces_do_not_show(self, monkeypatch):
        sampled = replace(TEST, probs=TEST.logits.softmax(dim=1))
        whole = score_all(sampled)
        monkeypatch.setattr(registry, "_PIECE", 20)
        for name, values in score_all(sampled).items():
            torch.testing.assert_close(values, whole[name], rtol=0, atol=1e-15)

    def test_no_samples_give_no_scores(self):
        none = replace(PLAIN, logits=torch.zeros(0, 3), labels=torch.zeros(0, dtype=torch.int64))
        assert {tuple(values.shape) for values in score_all(none).values()} == {(0,)}
