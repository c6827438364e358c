"""Scores that read the features through the linear head: against their formulas and the energy."""

import numpy as np
import pytest
import torch

from regmixup.metrics.scores import ASH, FDBD, SCALE, NNGuide, ReAct, ViM, energy
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
        with pytest.raises(ValueError, match="dim must leave a direction of the 6 features, got 6"):
            ViM(dim=6).fit(TRAIN, *HEAD)
        for dim in (0, 1.5, True):
            with pytest.raises(ValueError, match=f"dim must be an integer >= 1, got {dim}"):
                ViM(dim=dim)

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


class TestSCALE:
    @pytest.mark.parametrize("percentile", [0, 20, 85])
    def test_it_agrees_with_its_twin(self, percentile):
        positive = TEST + 0.1  # one sample is all zeros
        found = SCALE(percentile=percentile).fit(*HEAD)(positive)
        np.testing.assert_allclose(found, reference.scale(positive.numpy(), *ARRAYS[2:], percentile), rtol=1e-10)

    def test_it_keeps_what_ash_keeps_and_all_else_scaled_alike(self):
        scaled, shaped = SCALE(percentile=65).scaled(TEST), ASH(percentile=65).shaped(TEST)
        torch.testing.assert_close(scaled[shaped > 0], shaped[shaped > 0])
        assert torch.equal(scaled > 0, TEST > 0)

    def test_a_feature_of_zeros_stays_one_and_features_below_zero_are_refused(self):
        assert SCALE().scaled(torch.zeros(2, 5)).tolist() == [[0.0] * 5] * 2
        with pytest.raises(ValueError, match=r"SCALE needs features >= 0, .* got -1"):
            SCALE().fit(*HEAD)(torch.full((1, WIDTH), -1.0))


@pytest.mark.parametrize("score", [ASH, SCALE, ReAct])
def test_no_other_share_than_one_of_a_hundred_is_cut(score):
    with pytest.raises(ValueError, match="percentile must be a finite number >= 0 and <= 100, got -50"):
        score(percentile=-50)


class TestFDBD:
    def test_it_agrees_with_its_twin(self):
        np.testing.assert_allclose(FDBD().fit(TRAIN, *HEAD)(TEST), reference.fdbd(*ARRAYS), rtol=1e-10)

    def test_the_scale_of_the_head_cancels(self):
        scored = FDBD().fit(TRAIN, 7 * HEAD[0], 7 * HEAD[1])(TEST)
        torch.testing.assert_close(scored, FDBD().fit(TRAIN, *HEAD)(TEST))

    def test_classes_of_the_same_weights_and_the_mean_itself_have_finite_scores(self):
        weight = torch.cat([HEAD[0], HEAD[0][:1]])
        scored = FDBD().fit(TRAIN, weight)(torch.cat([TEST, TRAIN.mean(dim=0, keepdim=True)]))
        assert torch.isfinite(scored).all()


class TestNNGuide:
    @pytest.mark.parametrize("k", [1, 10, 90])
    def test_it_agrees_with_its_twin(self, k):
        np.testing.assert_allclose(
            NNGuide(k=k).fit(TRAIN + 1, *HEAD)(TEST + 1),
            reference.nnguide(ARRAYS[0] + 1, ARRAYS[1] + 1, *ARRAYS[2:], k),
            rtol=1e-10,
        )

    def test_k_is_one_of_the_train_samples(self):
        with pytest.raises(ValueError, match="k must be at most the number of train samples, 90, got 91"):
            NNGuide(k=91).fit(TRAIN, *HEAD)
        for k in (0, None):
            with pytest.raises(ValueError, match=f"k must be an integer >= 1, got {k}"):
                NNGuide(k=k)
