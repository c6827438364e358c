"""Which scores predictions allow, and all of them at once."""

from dataclasses import replace

import pytest
import torch

from regmixup.metrics.scores import (
    KNN,
    REGISTRY,
    SCORES,
    SCORES_OF_PROBS,
    Mahalanobis,
    available,
    duq,
    fit_scores,
    mutual_information,
    registry,
    score_all,
)
from tests.metrics.scores.made_up import predictions

TRAIN, TEST = predictions(90, 0, dataset="toy/train"), predictions(40, 1)
PLAIN = replace(TEST, features=None, head_weight=None, head_bias=None)
MEMBERS = torch.randn(3, 40, 3, generator=torch.Generator().manual_seed(0))
OF_CLASSES = ["mahalanobis", "mahalanobis_tied", "relative_mahalanobis", "knn"]
OF_HEAD = ["vim", "react", "ash"]


def test_entries_carry_their_names_and_any_models_scores_of_logits_are_functions_too():
    assert all(name == score.name for name, score in REGISTRY.items())
    assert list(SCORES) == ["dempster_shafer", "entropy", "energy", "max_probability", "max_logit", "gen", "odin"]
    assert {"entropy", "max_probability", "gen"} == SCORES_OF_PROBS


class TestAvailable:
    def test_logits_alone_allow_the_logit_scores(self):
        assert available(PLAIN) == available(PLAIN, TRAIN) == available(TEST) == list(SCORES)

    def test_members_add_mutual_information(self):
        assert available(replace(PLAIN, member_logits=MEMBERS)) == [*SCORES, "mutual_information"]

    def test_features_on_both_sides_add_the_fitted_scores(self):
        assert available(TEST, TRAIN) == [*SCORES, *OF_CLASSES, *OF_HEAD]
        assert available(TEST, replace(TRAIN, features=None)) == list(SCORES)

    def test_the_head_is_that_of_the_train_predictions(self):
        headless = {"head_weight": None, "head_bias": None}
        assert available(replace(TEST, **headless), TRAIN) == [*SCORES, *OF_CLASSES, *OF_HEAD]
        assert available(TEST, replace(TRAIN, **headless)) == [*SCORES, *OF_CLASSES]

    def test_scores_that_the_train_set_is_too_small_or_not_made_for_are_not_offered(self):
        assert "knn" not in available(TEST, predictions(49, 0))
        assert "ash" not in available(TEST, predictions(90, 0, rectified=False))


class TestFit:
    def test_all_that_the_train_predictions_allow(self):
        assert list(fit_scores(TRAIN)) == [*OF_CLASSES, *OF_HEAD]
        assert list(fit_scores(replace(TRAIN, head_weight=None, head_bias=None))) == OF_CLASSES
        assert fit_scores(None) == fit_scores(PLAIN) == {}

    def test_scores_without_a_fit_are_passed_over(self):
        assert list(fit_scores(TRAIN, ["entropy", "knn", "mutual_information"])) == ["knn"]
        assert fit_scores(None, SCORES) == {}

    def test_values_are_those_of_the_classes(self):
        found = score_all(TEST, fit_scores(TRAIN))
        assert torch.equal(found["knn"], KNN().fit(TRAIN.features, TRAIN.labels)(TEST.features))
        expected = Mahalanobis(covariance="tied").fit(TRAIN.features, TRAIN.labels)(TEST.features)
        assert torch.equal(found["mahalanobis_tied"], expected)

    def test_what_is_missing_is_named(self):
        with pytest.raises(ValueError, match="knn needs features, which the predictions for 'toy/test' do not hold"):
            fit_scores(PLAIN, ["knn"])
        with pytest.raises(ValueError, match="vim needs features and head_weight, which the predictions"):
            fit_scores(PLAIN, ["vim"])
        with pytest.raises(ValueError, match="mahalanobis needs train predictions to fit on, got None"):
            fit_scores(None, ["mahalanobis"])
        with pytest.raises(ValueError, match="unknown score 'mahalanobs': did you mean 'mahalanobis'"):
            fit_scores(TRAIN, ["mahalanobs"])


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
        torch.testing.assert_close(found["entropy"], torch.special.entr(probs).sum(dim=1), rtol=1e-12, atol=0)
        torch.testing.assert_close(found["max_probability"], 1 - probs.amax(dim=1), rtol=1e-10, atol=0)
        torch.testing.assert_close(found["gen"], (probs * (1 - probs)).pow(0.1).sum(dim=1), rtol=1e-10, atol=0)
        for name in SCORES.keys() - SCORES_OF_PROBS:
            assert torch.equal(found[name], SCORES[name](TEST.logits))

    def test_names_choose(self):
        fitted = fit_scores(TRAIN)
        assert list(score_all(TEST, fitted, names=["knn", "entropy"])) == ["knn", "entropy"]
        kernels = replace(PLAIN, logits=PLAIN.logits - 100)
        assert torch.equal(score_all(kernels, names=["duq"])["duq"], duq(kernels.logits))

    def test_what_is_missing_is_named(self):
        with pytest.raises(
            ValueError, match="mutual_information needs member_logits, which the predictions for 'toy/test'"
        ):
            score_all(TEST, names=["mutual_information"])
        with pytest.raises(ValueError, match="knn needs features, which the predictions for 'toy/test' do not hold"):
            score_all(PLAIN, fit_scores(TRAIN), names=["knn"])
        with pytest.raises(ValueError, match="vim must be among the fitted scores, got knn"):
            score_all(TEST, fit_scores(TRAIN, ["knn"]), names=["vim"])
        with pytest.raises(ValueError, match="unknown score 'entrop': did you mean 'entropy'"):
            score_all(TEST, names=["entrop"])

    def test_pieces_do_not_show(self, monkeypatch):
        given = replace(TEST, probs=TEST.logits.softmax(dim=1))
        whole = score_all(given)
        monkeypatch.setattr(registry, "_CHUNK", 20)
        for name, values in score_all(given).items():
            torch.testing.assert_close(values, whole[name], rtol=0, atol=1e-15)

    def test_no_samples_give_no_scores(self):
        none = replace(PLAIN, logits=torch.zeros(0, 3), labels=torch.zeros(0, dtype=torch.int64))
        assert {tuple(values.shape) for values in score_all(none).values()} == {(0,)}
