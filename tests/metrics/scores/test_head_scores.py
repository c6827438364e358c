"""ViM, ReAct and ASH, which read the features through the linear head: against their formulas and the energy."""

import numpy as np
import pytest
import torch

from regmixup.metrics.scores import ASH, ReAct, ViM, energy
from tests.metrics.scores.made_up import WIDTH, linear_head, mixture
from tests.references import scores as reference

TRAIN, TEST = (mixture(count, seed).features.relu() for count, seed in ((90, 0), (25, 1)))
HEAD = linear_head()
LOGITS = TEST @ HEAD[0].T + HEAD[1]
ARRAYS = TRAIN.numpy(), TEST.numpy(), HEAD[0].numpy(), HEAD[1].numpy()


class TestViM:
    @pytest.mark.parametrize("dim", [1, 3, 5])
    def test_it_follows_the_papers_formulas(self, dim):
        fitted = ViM(dim=dim).fit(TRAIN, *HEAD)
        np.testing.assert_allclose(fitted(TEST), reference.vim(*ARRAYS, dim), rtol=1e-8)
        assert fitted.facts["dim"] == dim

    def test_alpha_brings_the_mean_virtual_logit_to_the_mean_largest_logit(self):
        fitted = ViM(dim=2).fit(TRAIN, *HEAD)
        logits = TRAIN @ HEAD[0].T + HEAD[1]
        virtual = fitted(TRAIN) - energy(logits)
        assert virtual.mean().item() == pytest.approx(logits.amax(dim=1).mean().item(), rel=1e-10)

    @pytest.mark.parametrize(("width", "dim"), [(2, 1), (7, 3), (767, 383), (768, 512), (2047, 512), (2048, 1000)])
    def test_theusual_dimension_is_the_authors(self, width, dim):
        from regmixup.metrics.scores.head_scores import usual_dim

        assert usual_dim(width) == dim

    def test_the_principal_space_must_leave_something(self):
        with pytest.raises(ValueError, match="dim must leave a direction of the 6 features, got 6"):
            ViM(dim=6).fit(TRAIN, *HEAD)
        with pytest.raises(ValueError, match="dim must be an integer >= 1, got 0"):
            ViM(dim=0)

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
    @pytest.mark.parametrize(("variant", "percentile"), [("s", 0), ("s", 65), ("b", 20), ("p", 65), ("p", 0)])
    def test_it_agrees_with_its_twin(self, variant, percentile):
        positive = TEST + torch.rand(TEST.shape, generator=torch.Generator().manual_seed(2))  # no ties among zeros
        found = ASH(percentile=percentile, variant=variant).fit(*HEAD)(positive)
        expected = reference.ash(positive.numpy(), *ARRAYS[2:], percentile, variant)
        np.testing.assert_allclose(found, expected, rtol=1e-10)

    def test_a_feature_of_zeros_stays_one(self):
        for variant in ("s", "b", "p"):
            assert ASH(variant=variant).shaped(torch.zeros(2, 5)).tolist() == [[0.0] * 5] * 2

    def test_one_number_is_always_left(self):
        assert (ASH(percentile=99, variant="p").shaped(torch.rand(4, 5)) > 0).sum(dim=1).tolist() == [1] * 4

    @pytest.mark.parametrize("variant", ["s", "b"])
    def test_negative_features_are_refused_where_they_have_no_meaning(self, variant):
        with pytest.raises(ValueError, match=f"ASH '{variant}' needs features >= 0, as after a ReLU, got -1"):
            ASH(variant=variant).fit(*HEAD)(torch.full((1, WIDTH), -1.0))
        assert torch.isfinite(ASH(variant="p").fit(*HEAD)(torch.full((1, WIDTH), -1.0))).all()

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: ASH(percentile=100), "percentile must be"),
            (lambda: ASH(variant="x"), "unknown variant 'x'"),
            (lambda: ReAct(percentile=101), "percentile must be a finite number >= 0 and <= 100, got 101"),
        ],
    )
    def test_bad_fields_are_named(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()
