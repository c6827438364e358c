"""The last-layer Laplace: against the full Hessian, the published formulas, and what its settings promise."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss

from regmixup.metrics.calibration import ece
from regmixup.posthoc import LastLayerLaplace, laplace, predictive, probabilities
from regmixup.posthoc.laplace import _sampled
from regmixup.types import Predictions
from tests.posthoc.made_up import covariance_of, linear_head
from tests.references import laplace as reference

TRAIN, NEW = linear_head(), linear_head(7, seed=1)


class TestExactPrior:
    """Where the curvature is a Kronecker product, the answer is that of the full Hessian over all weights."""

    def check(self, features, weight):
        train = Predictions(
            features @ weight.T,
            torch.zeros(len(features), dtype=torch.int64),
            features=features,
            head_weight=weight,
        )
        new = linear_head(3, features.shape[1], len(weight), bias=False)
        for prior_variance in (0.1, 4.0):
            found = covariance_of(LastLayerLaplace(prior_variance=prior_variance).fit(train=train), new.features)
            for row, phi in zip(found, new.features, strict=True):
                full = reference.full_covariance(phi, features, weight, prior_variance=prior_variance)
                torch.testing.assert_close(row, full, rtol=0, atol=1e-10)

    def test_train_samples_that_share_their_features(self):
        one = linear_head(1, 3, 4, bias=False)
        self.check(one.features.repeat(9, 1), one.head_weight)

    def test_train_samples_that_share_their_probabilities(self):
        many = linear_head(9, 3, 4, bias=False)
        self.check(many.features, torch.zeros_like(many.head_weight))


@pytest.mark.parametrize(("bias", "prior_variance", "n_eff"), [(True, 0.1, None), (False, 4.0, 128.0)])
def test_the_split_prior_is_the_published_formula(bias, prior_variance, n_eff):
    train = linear_head(bias=bias)
    fitted = LastLayerLaplace(prior_variance=prior_variance, prior="split", n_eff=n_eff).fit(train=train)
    ((a, g),) = reference.factors(train.features, train.logits)
    for row, phi in zip(covariance_of(fitted, NEW.features), NEW.features, strict=True):
        expected = reference.split_covariance(
            phi, a, g, n_eff=n_eff or len(train), prior_variance=prior_variance, bias=bias
        )
        torch.testing.assert_close(row, expected, rtol=0, atol=1e-10)


class TestCurvature:
    @pytest.mark.parametrize("batch_size", [7, 1000])
    def test_the_mean_does_not_depend_on_the_batches(self, batch_size):
        ((a, g),) = reference.factors(TRAIN.features, TRAIN.logits)
        found = LastLayerLaplace(batch_size=batch_size).factors(TRAIN.features, TRAIN.logits)
        torch.testing.assert_close(found, (a, g))

    @pytest.mark.parametrize("batch_size", [2, 7])
    def test_the_running_average_is_a_loop_over_batches(self, batch_size):
        """Thirty batches of two: far enough for the weight of a new batch to stop at 0.05."""
        a, g = reference.running(reference.factors(TRAIN.features, TRAIN.logits, batch_size))
        found = LastLayerLaplace(average="running", batch_size=batch_size).factors(TRAIN.features, TRAIN.logits)
        torch.testing.assert_close(found, (a, g))

    def test_one_drawn_label_for_each_sample(self):
        uniform = torch.rand(60, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        labels = _sampled(TRAIN.logits.softmax(dim=1), uniform).argmax(dim=1)
        ((_, g),) = reference.factors(TRAIN.features, TRAIN.logits, labels=labels)
        for batch_size in (7, 1000):
            laplace = LastLayerLaplace(fisher="sampled", batch_size=batch_size, seed=5)
            found = laplace.factors(TRAIN.features, TRAIN.logits)
            torch.testing.assert_close(found[1], g)


class TestPredictive:
    @pytest.mark.parametrize("temperature", [1.0, 2.5])
    def test_samples_have_the_covariance(self, temperature):
        """Two classes: softmax is a sigmoid of the difference, whose mean is a one-dimensional integral."""
        train, new = linear_head(30, 3, 2, spread=2.0), linear_head(6, 3, 2, seed=4, spread=2.0)
        fitted = LastLayerLaplace(prior_variance=3.0, samples=40_000).fit(train=train)
        covariance = covariance_of(fitted, new.features)
        difference = new.logits[:, 0] - new.logits[:, 1]
        independent = covariance[:, 0, 0] + covariance[:, 1, 1]
        nodes, weights = map(torch.tensor, hermegauss(60))

        def mean_sigmoid(variance):
            at = difference[:, None] + variance.sqrt()[:, None] * nodes
            return (torch.sigmoid(at / temperature) * weights).sum(dim=1) / weights.sum()

        expected = mean_sigmoid(independent - 2 * covariance[:, 0, 1])
        torch.testing.assert_close(fitted(new, temperature).probs[:, 0], expected, rtol=0, atol=0.008)
        assert float((expected - mean_sigmoid(independent)).abs().max()) > 0.03

    def test_chunks_do_not_matter(self, monkeypatch):
        many = linear_head(50, seed=3)
        fitted = LastLayerLaplace(prior_variance=1.0, samples=5).fit(train=TRAIN)
        whole = fitted(many).probs
        monkeypatch.setattr(predictive, "_PIECE", 1)
        monkeypatch.setattr(laplace, "_PIECE", 1)
        torch.testing.assert_close(fitted(many).probs, whole, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("kept", [0, 2 * 16 * 8 * 3, 2**28])
    def test_noise_is_drawn_once_for_all_sets_and_temperatures(self, monkeypatch, kept):
        """40 rows are 3 pieces of 16; those that are not kept are drawn again, and nothing else changes."""
        sets = [linear_head(40, seed=seed) for seed in (1, 2)]
        method = LastLayerLaplace(prior_variance=1.0, samples=8)
        monkeypatch.setattr(predictive, "_PIECE", 16 * 8 * 3)
        alone = [method.fit(train=TRAIN)(predictions, t).probs for predictions in sets for t in (1.0, 2.0)]
        drawn, randn = [], torch.randn
        monkeypatch.setattr(predictive, "_KEPT", kept)
        monkeypatch.setattr(torch, "randn", lambda *shape, **kw: drawn.append(shape) or randn(*shape, **kw))
        fitted = method.fit(train=TRAIN)
        together = [fitted(predictions, t).probs for predictions in sets for t in (1.0, 2.0)]
        assert all(map(torch.equal, together, alone))
        assert len(drawn) == {0: 4 * 3, 2**28: 3}.get(kept, 2 + 4)


def test_samples_do_not_depend_on_the_signs_that_a_library_gives_to_eigenvectors(monkeypatch):
    laplace, real = LastLayerLaplace(prior_variance=1.0, samples=20), torch.linalg.eigh
    before = probabilities(laplace.fit(train=TRAIN)(TRAIN))

    def flipped(matrix):
        found = real(matrix)
        signs = torch.tensor([-1.0, 1.0]).repeat(len(matrix))[: len(matrix)].to(matrix)
        return SimpleNamespace(eigenvalues=found.eigenvalues, eigenvectors=found.eigenvectors * signs)

    monkeypatch.setattr(torch.linalg, "eigh", flipped)
    assert torch.equal(probabilities(laplace.fit(train=TRAIN)(TRAIN)), before)


class TestTuning:
    GRID = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    VALIDATION = linear_head(150, seed=5, spread=3.0, dataset="toy/val")
    OVERCONFIDENT = linear_head(60, spread=3.0)

    @pytest.mark.parametrize("way", ["monte_carlo", "mean_field"])
    def test_the_best_of_the_grid_by_trying_each(self, way):
        fields = {"predictive": way, "samples": 30, "n_eff": 3.0}
        fitted = LastLayerLaplace(grid=self.GRID, **fields).fit(train=self.OVERCONFIDENT, validation=self.VALIDATION)
        errors = {}
        for prior_variance in self.GRID:
            fixed = LastLayerLaplace(prior_variance=prior_variance, **fields)
            assert not fixed.needs_validation
            probs = probabilities(fixed.fit(train=self.OVERCONFIDENT)(self.VALIDATION))
            errors[prior_variance] = ece(probs, self.VALIDATION.labels)
        assert fitted.prior_variance == min(errors, key=errors.get)
        assert fitted.objective == pytest.approx(min(errors.values()), abs=1e-12)
        assert fitted.prior_variance not in (0.01, 1000.0)
        assert fitted.objective < ece(self.VALIDATION.logits.softmax(dim=1), self.VALIDATION.labels)

    def test_the_edge_of_the_grid_warns(self):
        tuned = LastLayerLaplace(grid=(1e-6, 1e-5), predictive="mean_field")
        with pytest.warns(UserWarning, match="the best prior variance, 1e-05, lies on the edge of the grid"):
            tuned.fit(train=self.OVERCONFIDENT, validation=self.VALIDATION)


class TestRefusals:
    @pytest.mark.parametrize("name", ["features", "head_weight"])
    def test_train_predictions_without_what_it_needs(self, name):
        with pytest.raises(ValueError, match=f"LastLayerLaplace needs {name}, which the predictions for 'toy/train'"):
            LastLayerLaplace(prior_variance=1.0).fit(train=replace(TRAIN, **{name: None}))

    @pytest.mark.parametrize("role", ["test", "shifted", "ood"])
    def test_train_predictions_that_are_of_no_train_set(self, role):
        with pytest.raises(ValueError, match=f"toy/train is no train set: nothing may be .*, its role is {role}"):
            LastLayerLaplace(prior_variance=1.0).fit(train=replace(TRAIN, role=role))

    def test_no_train_or_validation_predictions(self):
        with pytest.raises(ValueError, match="needs train predictions, got None"):
            LastLayerLaplace(prior_variance=1.0).fit(validation=TRAIN)
        with pytest.raises(ValueError, match="needs validation predictions to choose prior_variance, got None"):
            LastLayerLaplace().fit(train=TRAIN)

    def test_predictions_without_features_or_with_others(self):
        fitted = LastLayerLaplace(prior_variance=1.0, samples=2).fit(train=TRAIN)
        with pytest.raises(ValueError, match="needs features, which the predictions for 'toy-c/fog/1'"):
            fitted(replace(NEW, features=None, dataset="toy-c/fog/1"))
        with pytest.raises(ValueError, match=r"features must be \(N, 4\), got \(7, 2\)"):
            fitted(replace(NEW, features=NEW.features[:, :2]))

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"prior_variance": 0.0}, "prior_variance must be a finite number > 0, got 0.0"),
            ({"grid": (1.0, -1.0)}, "each number of grid must be a finite number > 0, got -1.0"),
            ({"batch_size": -1}, "batch_size must be an integer >= 1, got -1"),
            ({"n_eff": 0}, "n_eff must be a finite number > 0, got 0"),
            ({"n_eff": math.nan}, "n_eff must be a finite number > 0, got nan"),
            ({"samples": 0}, "samples must be an integer >= 1, got 0"),
            ({"factor": -1.0}, "factor must be a finite number >= 0, got -1.0"),
            ({"seed": None}, "seed must be an integer >= 0, got None"),
            ({"grid": ()}, "grid must hold at least one prior variance, got none"),
            ({"average": "exakt"}, "unknown average 'exakt': did you mean 'exact'"),
        ],
    )
    def test_settings_that_make_no_sense(self, fields, message):
        with pytest.raises(ValueError, match=message):
            LastLayerLaplace(**fields)
