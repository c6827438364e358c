"""The exact form against laplace-torch: KronLaplace of the last layer, the same curvature, prior and bias."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from regmixup.posthoc import LastLayerLaplace, probabilities
from regmixup.types import Predictions
from tests.posthoc.made_up import covariance_of


def both(classes, dim, prior_variance, batch_size=16, **fields):
    """The same network, fitted by the other library and by ours, and predictions for eight new inputs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated")
        from laplace import Laplace  # here: it takes seconds, and not every worker has a test of this file
    torch.manual_seed(classes + 10 * dim)
    model = nn.Sequential(nn.Linear(5, dim), nn.ReLU(), nn.Linear(dim, classes)).double()
    x, new = torch.randn(40, 5, dtype=torch.float64), torch.randn(8, 5, dtype=torch.float64)
    y = torch.randint(classes, (40,))
    other = Laplace(
        model,
        "classification",
        subset_of_weights="last_layer",
        hessian_structure="kron",
        prior_precision=1 / prior_variance,
    )
    other.fit(DataLoader(TensorDataset(x, y), batch_size=batch_size))

    @torch.no_grad()
    def predictions(images, labels):
        features, head = model[:2](images), model[2]
        return Predictions(head(features), labels, features=features, head_weight=head.weight, head_bias=head.bias)

    ours = LastLayerLaplace(prior_variance=prior_variance, **fields).fit(train=predictions(x, y))
    return other, ours, new, predictions(new, torch.zeros(8, dtype=torch.int64))


@pytest.mark.parametrize("batch_size", [40, 7])
@pytest.mark.parametrize(("classes", "dim"), [(3, 1), (5, 8)])
def test_the_covariance_of_the_logits_is_the_same(classes, dim, batch_size):
    for prior_variance in (0.05, 1.0, 30.0):
        other, ours, x, new = both(classes, dim, prior_variance, batch_size)
        mean, covariance = other._glm_predictive_distribution(x)
        torch.testing.assert_close(mean, new.logits)
        torch.testing.assert_close(covariance_of(ours, new.features), covariance, rtol=1e-10, atol=1e-10)
        diagonal = covariance.diagonal(dim1=1, dim2=2)
        torch.testing.assert_close(ours.variance(new.features), diagonal, rtol=1e-10, atol=1e-10)


def test_its_probit_approximation_is_our_mean_field():
    other, ours, x, new = both(4, 6, 2.0, predictive="mean_field", factor=math.pi / 8)
    torch.testing.assert_close(probabilities(ours(new)), other(x, link_approx="probit"), rtol=0, atol=1e-10)
