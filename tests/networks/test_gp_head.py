"""The Gaussian-process head: Bayesian linear regression in its random features."""

import math

import pytest
import torch

from regmixup.networks import build
from regmixup.networks.gp_head import GPHead, orthogonal_features


def head(feature_dim=6, num_classes=3, seed=0, **fields):
    torch.manual_seed(seed)
    return GPHead(**{"num_features": 40, "kernel_std": 0.5, **fields}).build(feature_dim, num_classes).double()


def features(count=30, dim=6, seed=1):
    return torch.randn(count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class TestPosterior:
    def test_mean_and_variance_are_those_of_the_gaussian_process_with_the_features_kernel(self):
        """With the ridge solution as weights: k* (K + s I)^-1 y and k** - k* (K + s I)^-1 k*, in function space."""
        gp, train, test = head(ridge=0.5, num_classes=1), features(), features(seed=2)
        gp.precision.fill_(7)  # the sum is a fresh one
        y = torch.sin(train.sum(dim=1, keepdim=True))
        gp.finalize(train.split(7))
        phi, phi_test = gp.random_features(train), gp.random_features(test)
        ridge_solution = torch.linalg.solve(phi.T @ phi + 0.5 * torch.eye(40, dtype=torch.float64), phi.T @ y)
        gp.weight.data = ridge_solution.T
        gram = phi @ phi.T + 0.5 * torch.eye(30, dtype=torch.float64)
        cross = phi_test @ phi.T
        torch.testing.assert_close(gp(test), cross @ torch.linalg.solve(gram, y))
        expected = (phi_test @ phi_test.T - cross @ torch.linalg.solve(gram, cross.T)).diagonal()
        torch.testing.assert_close(gp.variance(test).squeeze(1), expected)

    def test_before_the_data_it_is_the_prior(self):
        gp = head()
        phi = gp.random_features(features())
        torch.testing.assert_close(gp.variance(features()).squeeze(1), phi.square().sum(dim=1))


class TestRandomFeatures:
    def test_directions_are_orthogonal_in_blocks_with_gaussian_lengths(self):
        torch.manual_seed(0)
        projection = orthogonal_features(50, 120)
        assert projection.shape == (50, 120)
        for block in projection.split(50, dim=1):
            gram = block.T @ block
            off = gram - gram.diagonal().diag()
            assert off.abs().max() < 1e-4 * gram.diagonal().min()
        lengths = projection.norm(dim=0)
        assert lengths.mean().item() == pytest.approx(math.sqrt(50), rel=0.05)
        assert 0.4 < lengths.std().item() < 1.1  # a chi distribution with 50 degrees of freedom has 0.705

    def test_their_products_average_to_the_gaussian_kernel(self):
        """E[2 cos(a) cos(b)] over phases = cos(w (h - h')), whose mean is exp(-std^2 |h - h'|^2 / 2)."""
        h, other = features(1), features(1, seed=5)
        heads = [head(num_features=600, kernel_std=0.3, seed=seed) for seed in range(50)]
        products = [2 * (gp.random_features(h) * gp.random_features(other)).mean().item() for gp in heads]
        expected = math.exp(-0.09 * (h - other).square().sum().item() / 2)
        assert sum(products) / len(products) == pytest.approx(expected, abs=0.02)

    def test_autocast_does_not_touch_the_angles(self):
        torch.manual_seed(0)
        gp = GPHead(num_features=64, kernel_std=1.0).build(16, 3)
        h = 20 * torch.randn(8, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = gp.random_features(h)
        assert torch.equal(inside, gp.random_features(h))


class TestCovariance:
    def test_a_network_shows_its_head_features_in_evaluation_mode(self):
        torch.manual_seed(0)
        model = build("small", num_classes=3, in_channels=1, head=GPHead(num_features=32), dropout=0.5)
        x = torch.rand(9, 1, 8, 8)
        model.train()
        before = {name: value.clone() for name, value in model.backbone.state_dict().items()}
        assert model.finalize(x.split(4))
        assert model.training
        assert model.backbone.training
        for name, value in model.backbone.state_dict().items():
            assert torch.equal(value, before[name]), name
        phi = model.eval().head.random_features(model.features(x))
        torch.testing.assert_close(model.head.precision, phi.T @ phi)


def test_bad_values_are_refused():
    with pytest.raises(ValueError, match="ridge must be a finite number > 0, got -1"):
        GPHead(ridge=-1)
    with pytest.raises(ValueError, match="kernel_std must be a finite number > 0, got nan"):
        GPHead(kernel_std=float("nan"))


def test_batches_that_are_used_up_are_refused():
    """The covariance would stay the prior's."""
    head = GPHead(num_features=8).build(feature_dim=4, num_classes=3)
    batches = iter([torch.rand(5, 4)])
    head.finalize(batches)
    with pytest.raises(ValueError, match=r"^batches must hold train images for the covariance, got none$"):
        head.finalize(batches)


def test_the_precision_of_a_network_in_bfloat16_is_summed_in_float32():
    head = GPHead(num_features=8).build(feature_dim=4, num_classes=3).bfloat16()
    features = torch.rand(2000, 4).bfloat16()
    head.finalize(features.split(10))
    phi = head.random_features(features).double()
    torch.testing.assert_close(head.precision.double(), phi.T @ phi, rtol=0.01, atol=1.0)
