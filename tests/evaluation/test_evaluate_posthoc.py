"""Evaluating what a posthoc method makes of predictions: every row against the same computed by hand."""

from dataclasses import replace

import pytest
import torch

from regmixup.evaluation.class_subset import restrict_pair
from regmixup.evaluation.evaluate import evaluate
from regmixup.metrics.detection import auroc
from regmixup.metrics.scores import SCORES
from regmixup.posthoc import LastLayerLaplace, MeanField, MonteCarlo, TemperatureScaling, ensemble
from regmixup.types import Predictions
from tests.evaluation.test_evaluate import CLASSIFICATION, OOD, SHIFT, TEST, VALIDATION, value
from tests.posthoc.made_up import linear_head


def with_variance(predictions, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return replace(predictions, logit_variance=3 * torch.rand(predictions.logits.shape, generator=generator))


UNCERTAIN = {
    "test": with_variance(TEST),
    "validation": with_variance(VALIDATION),
    "shift": [with_variance(p) for p in SHIFT],
    "ood": [with_variance(p) for p in OOD],
}


def rows_with(posthoc):
    sets = dict(UNCERTAIN)
    return evaluate(sets.pop("test"), **sets, posthoc=posthoc)


def check_classification(rows, predictions, probs, **where):
    for name, metric in CLASSIFICATION.items():
        assert value(rows, metric=name, **where) == metric(probs, predictions.labels)


@pytest.fixture(scope="module")
def rows():
    return rows_with(TestMonteCarlo.posthoc)


class TestMonteCarlo:
    posthoc = MonteCarlo(samples=5).fit()

    def test_rows_without_temperature(self, rows):
        for p, where in ((UNCERTAIN["test"], {"dataset": "toy/test"}), (UNCERTAIN["shift"][2], {"corruption": "fog"})):
            check_classification(rows, p, self.posthoc(p).probs, posthoc="none", **where)

    def test_the_temperature_is_fitted_through_the_samples_and_divides_each(self, rows):
        validation = UNCERTAIN["validation"]
        fitted = TemperatureScaling().fit_predictive(lambda t: self.posthoc(validation, t).probs, validation.labels)
        assert value(rows, metric="temperature") == fitted.temperature
        assert fitted.temperature != TemperatureScaling().fit(validation.logits, validation.labels).temperature
        for p, where in ((UNCERTAIN["test"], {"dataset": "toy/test"}), (UNCERTAIN["shift"][2], {"corruption": "fog"})):
            probs = self.posthoc(p, fitted.temperature).probs
            check_classification(rows, p, probs, posthoc="temperature", **where)

    def test_entropy_is_that_of_the_probabilities_and_dempster_shafer_that_of_the_logits(self, rows):
        known, other = UNCERTAIN["test"], UNCERTAIN["ood"][1]
        known_probs, other_probs = self.posthoc(known).probs, self.posthoc(other).probs
        entropies = [torch.special.entr(probs).sum(dim=1) for probs in (known_probs, other_probs)]
        assert value(rows, dataset="far/test", score="entropy", metric="auroc") == auroc(*entropies)
        found = value(rows, dataset="far/test", score="max_probability", metric="auroc")
        assert found == pytest.approx(auroc(1 - known_probs.amax(dim=1), 1 - other_probs.amax(dim=1)), abs=1e-12)
        for name in ("dempster_shafer", "energy", "max_logit"):
            expected = auroc(SCORES[name](known.logits), SCORES[name](other.logits))
            assert value(rows, dataset="far/test", score=name, metric="auroc") == expected


class TestMeanField:
    def test_rows_are_those_of_the_mean_field_logits(self):
        def shrunk(p):
            return replace(p, logits=p.logits / (1 + 2 * p.logit_variance).sqrt(), logit_variance=None)

        plain = evaluate(
            shrunk(UNCERTAIN["test"]),
            validation=shrunk(UNCERTAIN["validation"]),
            shift=[shrunk(p) for p in UNCERTAIN["shift"]],
            ood=[shrunk(p) for p in UNCERTAIN["ood"]],
        )
        assert rows_with(MeanField(factor=2.0).fit()) == plain


def test_laplace_is_fitted_and_evaluated_from_stored_predictions():
    train, test, validation = (linear_head(80, seed=seed, spread=2.0, dataset=f"set/{seed}") for seed in range(3))
    fitted = LastLayerLaplace(prior_variance=1.0, samples=10).fit(train=train)
    rows = evaluate(test, validation=validation, posthoc=fitted)
    check_classification(rows, test, fitted(test).probs, posthoc="none")
    assert value(rows, metric="prior_variance") == 1.0
    temperature = value(rows, metric="temperature")
    check_classification(rows, test, fitted(test, temperature).probs, posthoc="temperature")


class TestEnsemble:
    def members(self, predictions):
        return [predictions, replace(predictions, logits=predictions.logits.roll(1, dims=1) / 3)]

    def test_mean_logits_are_one_models_logits(self):
        test, validation = ensemble(self.members(TEST)), ensemble(self.members(VALIDATION))
        plain = evaluate(
            Predictions(test.logits, test.labels, dataset=test.dataset),
            validation=Predictions(validation.logits, validation.labels, dataset=validation.dataset),
        )
        rows = evaluate(test, validation=validation)
        assert [row for row in rows if row.score != "mutual_information"] == plain
        assert value(rows, score="mutual_information", metric="aurc") >= 0


class TestClassSubset:
    """A set of classes 1 and 3: probabilities given that the class is one of these."""

    info = {"class_subset": "1,3"}  # noqa: RUF012
    posthoc = MonteCarlo(samples=5).fit()

    def test_shifted_sets(self):
        labels = torch.where(UNCERTAIN["shift"][0].labels < 2, 1, 3)
        shifted = replace(UNCERTAIN["shift"][0], dataset="toy-a/test", info=self.info, labels=labels)
        rows = evaluate(UNCERTAIN["test"], shift=[shifted], posthoc=self.posthoc)
        probs = self.posthoc(shifted).probs[:, [1, 3]]
        expected = Predictions(probs.log(), labels // 2, probs=probs / probs.sum(dim=1, keepdim=True))
        check_classification(rows, expected, expected.probs, dataset="toy-a/test (2 classes)", corruption="mean")

    def test_ood_sets_carry_their_probabilities(self):
        ood = replace(UNCERTAIN["ood"][0], dataset="toy-o/test", info=self.info)
        known = self.posthoc(UNCERTAIN["test"])
        inside = (known.labels == 1) | (known.labels == 3)
        parts = [known.probs[inside][:, [1, 3]], self.posthoc(ood).probs[:, [1, 3]]]
        parts = [part / part.sum(dim=1, keepdim=True) for part in parts]
        for found, expected in zip(restrict_pair(known, self.posthoc(ood)), parts, strict=True):
            assert torch.equal(found.probs, expected)
        rows = evaluate(UNCERTAIN["test"], ood=[ood], posthoc=self.posthoc)
        entropies = [torch.special.entr(part).sum(dim=1) for part in parts]
        found = value(rows, dataset="toy-o/test (2 classes)", score="entropy", metric="auroc")
        assert found == pytest.approx(auroc(*entropies), abs=1e-12)
