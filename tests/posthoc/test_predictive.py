"""The mean softmax of Gaussian logits: against integrals, limits, and itself cut into other pieces."""

from functools import partial

import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss

from regmixup.posthoc import MeanField, MonteCarlo, predictive
from regmixup.posthoc.predictive import monte_carlo
from regmixup.types import Predictions


def uncertain(count=50, classes=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    variance = 3 * torch.rand(count, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (count,), generator=generator)
    return Predictions(logits.to(dtype), labels, logit_variance=variance.to(dtype), dataset="toy/test")


sampled = partial(monte_carlo, samples=8)


class TestMonteCarlo:
    @pytest.mark.parametrize("temperature", [0.5, 3.0])
    def test_two_classes_are_an_integral_over_one_gaussian(self, temperature):
        """p_0 = E sigmoid(z / T) with z ~ N(s_0 - s_1, v_0 + v_1): 60 nodes give it to more digits than samples do."""
        p = uncertain(6, 2)
        nodes, weights = map(torch.tensor, hermegauss(60))
        spread = p.logit_variance.sum(dim=1).sqrt()
        difference = (p.logits[:, 0] - p.logits[:, 1])[:, None] + spread[:, None] * nodes
        expected = (torch.sigmoid(difference / temperature) * weights).sum(dim=1) / weights.sum()
        found = sampled(p.logits, p.logit_variance, samples=40_000, temperature=temperature)
        torch.testing.assert_close(found[:, 0], expected, rtol=0, atol=0.008)

    def test_one_variance_for_all_classes_is_still_independent_noise(self):
        p = uncertain()
        shared = p.logit_variance[:, :1]
        assert torch.equal(sampled(p.logits, shared), sampled(p.logits, shared.expand(50, 4)))
        same_noise_for_all = p.logits.softmax(dim=1)
        assert float((sampled(p.logits, shared) - same_noise_for_all).abs().max()) > 0.05

    def test_a_basis_turns_the_noise(self):
        """Noise along (1, 1, 1) alone changes no softmax; the same variance along a class does."""
        logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        basis = torch.linalg.qr(torch.tensor([[1.0, 1, 0], [1, 0, 1], [1, 0, 0]], dtype=torch.float64)).Q
        variance = torch.tensor([[9.0, 0.0, 0.0]], dtype=torch.float64).expand(20, 3)
        torch.testing.assert_close(sampled(logits, variance, basis=basis), logits.softmax(dim=1))
        assert float((sampled(logits, variance) - logits.softmax(dim=1)).abs().max()) > 0.1

    @pytest.mark.parametrize(
        ("dtype", "classes", "samples"), [(torch.float64, 2, 1), (torch.float32, 3, 5), (torch.float64, 4, 8)]
    )
    def test_neither_chunks_nor_later_rows_matter(self, monkeypatch, dtype, classes, samples):
        p = uncertain(75, classes, dtype=dtype)
        whole = sampled(p.logits, p.logit_variance, samples=samples)
        for chunk in (1, 16 * samples * classes, 50 * samples * classes):
            monkeypatch.setattr(predictive, "_PIECE", chunk)
            assert torch.equal(sampled(p.logits, p.logit_variance, samples=samples), whole)
        assert torch.equal(sampled(p.logits[:21], p.logit_variance[:21], samples=samples), whole[:21])

    def test_samples_of_half_precision_logits_are_taken_in_float32(self):
        p = uncertain(dtype=torch.float16)
        found = sampled(p.logits, p.logit_variance)
        assert found.dtype == torch.float64
        assert torch.equal(found, sampled(p.logits.float(), p.logit_variance.float()))


class TestOnPredictions:
    def test_monte_carlo_keeps_the_logits_and_sets_the_probabilities(self):
        p = uncertain()
        said = MonteCarlo(samples=6, seed=3).fit()(p, 2.0)
        assert said.logits is p.logits
        assert torch.equal(said.probs, sampled(p.logits, p.logit_variance, seed=3, samples=6, temperature=2.0))

    def test_mean_field_changes_the_logits_and_scales_only_the_probabilities(self):
        p = uncertain()
        expected = p.logits / (1 + 20 * p.logit_variance).sqrt()
        once, hot = MeanField(factor=20).fit()(p), MeanField(factor=20).fit()(p, 2.0)
        assert torch.equal(once.logits, expected)
        assert once.probs is None
        assert torch.equal(hot.logits, expected)
        assert torch.equal(hot.probs, (expected / 2).softmax(dim=1))

    @pytest.mark.parametrize("method", [MeanField(), MonteCarlo()])
    def test_the_variance_is_used_once(self, method):
        said = method.fit()(uncertain())
        with pytest.raises(ValueError, match=f"{type(method).__name__} needs logit_variance, which .* 'toy/test'"):
            method.fit()(said)

    def test_settings_that_make_no_sense(self):
        with pytest.raises(ValueError, match=r"factor must be a finite number >= 0, got -1.0"):
            MeanField(factor=-1.0)
        with pytest.raises(ValueError, match="samples must be an integer >= 1, got 0"):
            MonteCarlo(samples=0)
        with pytest.raises(ValueError, match=r"seed must be an integer >= 0, got 1\.5"):
            MonteCarlo(seed=1.5)
