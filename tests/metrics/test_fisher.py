"""The Fisher criterion against scatter matrices sample by sample, generalised eigenvalues and a case by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.linalg import eigh

from regmixup.metrics.fisher import ClassMoments, fisher_criterion
from tests.references import metrics as reference


def clouds(samples=200, width=6, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=generator)
    centres = torch.randn(classes, width, generator=generator)
    mixing = torch.randn(width, width, generator=generator)
    return centres[labels] + torch.randn(samples, width, generator=generator) @ mixing, labels


def test_two_classes_by_hand():
    """Class 0 at (+-1, 0), (0, +-2), class 1 the same shifted by (6, 0). S_W = diag(4, 16), S_B = 8 * 9 in the first
    direction: 72 / 4 = 18."""
    cross = torch.tensor([[1.0, 0], [-1, 0], [0, 2], [0, -2]])
    features = torch.cat([cross, cross + torch.tensor([6.0, 0])])
    labels = torch.tensor([0] * 4 + [1] * 4)
    assert fisher_criterion(features, labels, regulariser=0.0) == pytest.approx(18, rel=1e-12)
    # The regulariser adds r * 20 / 2 to both: 72 / (4 + 0.1).
    assert fisher_criterion(features, labels, regulariser=0.01) == pytest.approx(72 / 4.1, rel=1e-12)


def test_the_criterion_is_the_sum_of_generalised_eigenvalues():
    features, labels = clouds()
    within, between = reference.fisher(features, labels.tolist())
    ridge = 1e-6 * np.trace(within) / 6 * np.eye(6)
    expected = eigh(between, within + ridge, eigvals_only=True)
    assert fisher_criterion(features, labels) == pytest.approx(expected.sum(), rel=1e-9)
    assert (expected > 1e-9).sum() == 3  # the rank of S_B is at most K - 1


@pytest.mark.parametrize("cuts", [[0, 200], [0, 3, 50, 200], [0, 0, 199, 200]])
def test_moments_of_pieces_add_up(cuts):
    """Pieces that are empty, or that miss classes, too."""
    features, labels = clouds(seed=3)
    order = labels.argsort()
    features, labels = features[order] + 1000, labels[order]  # far from 0, so that sums of squares would lose digits
    whole = ClassMoments.of(features, labels, 5)
    pieces = [ClassMoments.of(features[a:b], labels[a:b], 5) for a, b in pairwise(cuts)]
    total = sum(pieces[1:], start=pieces[0])
    assert torch.equal(total.count, whole.count)
    assert total.scatter.dtype == torch.float64
    torch.testing.assert_close(total.mean, whole.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(total.scatter, whole.scatter, rtol=1e-9, atol=1e-9)
    assert total.criterion() == pytest.approx(fisher_criterion(features, labels), rel=1e-9)


def test_dead_units_need_the_regulariser():
    features, labels = clouds()
    features = torch.cat([features, torch.zeros(200, 1)], dim=1)
    with pytest.raises(ValueError, match=r"singular: raise the regulariser, got 0.0"):
        fisher_criterion(features, labels, regulariser=0.0)
    alive = fisher_criterion(features[:, :6], labels, regulariser=1e-6 * 6 / 7)
    assert fisher_criterion(features, labels) == pytest.approx(alive, rel=1e-9)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.zeros(4), torch.zeros(4, dtype=torch.int64), r"features must be floating point of shape \(N, D\)"),
        (torch.zeros(4, 2), torch.zeros(3, dtype=torch.int64), r"labels must be integers of shape \(4,\)"),
        (torch.full((2, 2), torch.nan), torch.zeros(2, dtype=torch.int64), "features must be finite"),
        (torch.zeros(2, 2), torch.tensor([0, -1]), r"labels must lie in \[0, 1\), got values from -1 to 0"),
        (torch.zeros(2, 2), torch.tensor([0, 1]), "features must vary within some class"),
    ],
)
def test_arguments_are_checked(features, labels, message):
    with pytest.raises(ValueError, match=message):
        fisher_criterion(features, labels)


@pytest.mark.parametrize("regulariser", [-1e-9, math.nan, None])
def test_the_regulariser_is_not_negative(regulariser):
    features, labels = torch.tensor([[0.0], [2.0], [10.0], [12.0]]), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match=f"regulariser must be a finite number >= 0, got {regulariser}"):
        fisher_criterion(features, labels, regulariser=regulariser)
