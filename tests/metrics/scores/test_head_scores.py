"""ViM, ReAct and ASH, which read the features through the linear head: against their formulas and the energy."""

import numpy as np
import pytest
import torch

from regmixup.metrics.scores import ASH, ReAct, ViM, energy
from regmixup.metrics.scores.head_scores import usual_dim
from tests.metrics.scores.made_up import WIDTH, linear_head, mixture
from tests.references import scores as reference

TRAIN, TEST = (mixture(count, seed).features.relu() for count, seed in ((90, 0), (25, 1)))
HEAD = linear_head()
LOGITS = TEST @ HEAD[0].T + HEAD[1]
ARRAYS = TRAIN.numpy(), TEST.numpy(), HEAD[0].numpy(), HEAD[1].numpy()


class TestViM:
    @pytest.mark.parametrize("dim", [1, 3, 5])
    def test_it_follows_the_papers_formulas(self, dim):
        np.testing.assert_allclose(ViM(dim=dim).fit(TRAIN, *HEAD)(TEST), reference.vim(*ARRAYS, dim), rtol=1e-8)

    def test_alpha_brings_the_mean_virtual_logit_to_the_mean_largest_logit(self):
        fitted = ViM(dim=2).fit(TRAIN, *HEAD)
        logits = TRAIN @ HEAD[0].T + HEAD[1]
        virtual = fitted(TRAIN) - energy(logits)
        assert virtual.mean().item() == pytest.approx(logits.amax(dim=1).mean().item(), rel=1e-10)

    @pytest.mark.parametrize(("width", "dim"), [(2, 1), (7, 3), (767, 383), (768, 512), (2047, 512), (2048, 1000)])
    def test_the_usual_dimension_is_the_authors(self, width, dim):
        assert usual_dim(width) == dim

    def test_the_principal_space_must_leave_something(self):
        for dim in (0, 6):
            with pytest.raises(ValueError, match=f"dim must be positive and leave .* of the 6 features, got {dim}"):
                ViM(dim=dim).fit(TRAIN, *HEAD)

    def test_features_that_never_leave_the_principal_space_are_refused(self):
        flat = torch.zeros(20, WIDTH, dtype=torch.float64)
        flat[:, 0] = torch.arange(20)
        with pytest.raises(ValueError, match="must leave their principal space, got none that does for dim 1"):
            ViM(dim=1).fit(flat, HEAD[0])


class TestReAct:
    @pytest.mark.parametrize("percentile", [0, 37.5, 90])
    def test_it_is_the_energy_of_clipped_features(self, percentile):
        found = ReAct(percentile=percentile).fit(TRAIN, *HEAD)(TEST)
        np.testing.assert_allclose(found, reference.react(*ARRAYS, percentile), rtol=1e-10)


class TestASH:
    @pytest.mark.parametrize("percentile", [0, 20, 65])
    def test_it_agrees_with_its_twin(self, percentile):
        positive = TEST + torch.rand(TEST.shape, generator=torch.Generator().manual_seed(2))  # no ties among zeros
        found = ASH(percentile=percentile).fit(*HEAD)(positive)
        expected = reference.ash(positive.numpy(), *ARRAYS[2:], percentile)
        np.testing.assert_allclose(found, expected, rtol=1e-10)

    def test_a_feature_of_zeros_stays_one_and_one_number_is_always_left(self):
        assert ASH().shaped(torch.zeros(2, 5)).tolist() == [[0.0] * 5] * 2
        assert (ASH(percentile=99).shaped(torch.rand(4, 5)) > 0).sum(dim=1).tolist() == [1] * 4

    def test_features_below_zero_are_refused(self):
        with pytest.raises(ValueError, match=r"ASH needs features >= 0, .* got -1"):
            ASH().fit(*HEAD)(torch.full((1, WIDTH), -1.0))
