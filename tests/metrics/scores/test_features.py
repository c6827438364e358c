"""Distance to the k-th nearest train feature: against scikit-learn and a loop."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from regmixup.metrics.scores import KNN
from tests.metrics.scores.made_up import mixture
from tests.references import scores as reference

TRAIN, TEST = mixture(90, 0).features, mixture(25, 1).features


@pytest.mark.parametrize("k", [1, 7, 90])
def test_it_is_scikit_learns_and_the_loops_kth_distance(k):
    found = KNN(k=k).fit(TRAIN)(TEST)
    train, test = (torch.nn.functional.normalize(x).numpy() for x in (TRAIN, TEST))
    distances, _ = NearestNeighbors(n_neighbors=k).fit(train).kneighbors(test)
    np.testing.assert_allclose(found, distances[:, -1], rtol=1e-10)
    np.testing.assert_allclose(found, reference.knn(TRAIN.numpy(), TEST.numpy(), k), rtol=1e-10)


def test_directions_that_are_close_keep_their_digits_in_float32():
    """|a|^2 + |b|^2 - 2 a b of vectors of length 1 that lie 1e-5 apart has no digit left in float32."""
    generator = torch.Generator().manual_seed(0)
    train, test = (1000 + 0.01 * torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (60, 20))
    train, test = train.float(), test.float()
    expected = reference.knn(train.double().numpy(), test.double().numpy(), 5)
    np.testing.assert_allclose(KNN(k=5).fit(train)(test), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: KNN(k=0), "k must be an integer >= 1, got 0"),
        (lambda: KNN(k=1.5), "k must be an integer >= 1, got 1.5"),
        (lambda: KNN(k=91).fit(TRAIN), "k must be at most the number of train samples, 90, got 91"),
        (lambda: KNN().fit(TRAIN), "labels must be given for the default k, which their classes choose, got None"),
    ],
)
def test_what_cannot_be_fitted_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("classes", "k"), [(10, 50), (200, 200), (1000, 1000)])
def test_the_default_k_is_that_of_the_train_set(classes, k):
    """50, 200, 1000 for CIFAR-10, CIFAR-100 and ImageNet (Sun et al., 2022), else of the nearest number of classes."""
    features = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
    fitted = KNN().fit(features, torch.arange(1000) % classes)
    assert torch.equal(fitted(features[:9]), KNN(k=k).fit(features)(features[:9]))
