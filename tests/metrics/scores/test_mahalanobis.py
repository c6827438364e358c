"""Mahalanobis distances, class-wise, tied and relative: against SciPy, scikit-learn and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import EmpiricalCovariance

from regmixup.metrics.scores import Mahalanobis, RelativeMahalanobis
from tests.metrics.scores.made_up import WIDTH, mixture
from tests.references import scores as reference

TRAIN, TEST = mixture(90, 0), mixture(25, 1)


def by_scipy(points, means, inverses):
    pairs = list(zip(means, inverses, strict=True))
    return np.array([min(mahalanobis(x, mean, inverse) ** 2 for mean, inverse in pairs) for x in points])


@pytest.mark.parametrize("covariance", ["classwise", "tied"])
def test_jitter_is_added_in_units_of_the_mean_within_class_variance(covariance):
    classes = reference.classes(TRAIN.features.numpy(), TRAIN.labels.numpy())
    pooled = reference.tied(classes)
    ridge = 0.3 * np.trace(pooled) / WIDTH
    sigmas = [c[1] if covariance == "classwise" else pooled for c in classes]
    inverses = [np.linalg.inv(sigma + ridge * np.eye(WIDTH)) for sigma in sigmas]
    fitted = Mahalanobis(covariance=covariance, jitter=0.3).fit(*TRAIN)
    expected = by_scipy(TEST.features.numpy(), [c[0] for c in classes], inverses)
    np.testing.assert_allclose(fitted(TEST.features), expected, rtol=1e-9)


def test_relative_is_the_tied_distance_less_that_to_all_train_features():
    tied = Mahalanobis(covariance="tied", jitter=0.0).fit(*TRAIN)(TEST.features)
    overall = EmpiricalCovariance().fit(TRAIN.features.numpy()).mahalanobis(TEST.features.numpy())
    found = RelativeMahalanobis(jitter=0.0).fit(*TRAIN)(TEST.features)
    np.testing.assert_allclose(found, tied.numpy() - overall, rtol=1e-9, atol=1e-10)


def test_fewer_samples_than_dimensions_need_jitter():
    """Five samples of each class in 6 dimensions, one unit being dead."""
    features, labels = mixture(15, 5)
    features[:, 2] = 0
    with pytest.raises(ValueError, match="singular with 0 on its diagonal: raise jitter"):
        Mahalanobis(jitter=0.0).fit(features, labels)
    assert torch.isfinite(Mahalanobis().fit(features, labels)(TEST.features)).all()


@pytest.mark.parametrize("score", [Mahalanobis(), Mahalanobis(covariance="tied"), RelativeMahalanobis()])
def test_labels_are_only_names(score):
    renamed = torch.tensor([70, 4, 11])[TRAIN.labels]
    torch.testing.assert_close(
        score.fit(TRAIN.features, renamed)(TEST.features), score.fit(*TRAIN)(TEST.features), rtol=1e-9, atol=1e-10
    )


def test_an_unknown_covariance_is_refused():
    with pytest.raises(ValueError, match="unknown covariance 'diagonal'"):
        Mahalanobis(covariance="diagonal")


@pytest.mark.parametrize("score", [Mahalanobis, RelativeMahalanobis])
@pytest.mark.parametrize("jitter", [-1e-3, math.nan, None])
def test_jitter_is_not_negative(score, jitter):
    with pytest.raises(ValueError, match=f"jitter must be a finite number >= 0, got {jitter}"):
        score(jitter=jitter)
