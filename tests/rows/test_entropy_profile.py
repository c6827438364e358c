"""Known logits along a path -> known histogram."""

import math

import pytest
import torch

from regmixup.rows.entropy_profile import entropy_profile
from regmixup.types import Predictions

CERTAIN, UNIFORM = [1000.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]
HALF = [0.0, 0.0, -1000.0, -1000.0]  # entropy log 2 = half of log 4


def path_predictions(rows, pairs, lambdas):
    logits = torch.tensor(rows, dtype=torch.float64)
    info = {"pairs": str(pairs), "lambdas": str(lambdas)}
    return Predictions(logits, torch.zeros(len(rows), dtype=torch.int64), dataset="path:toy/test", info=info)


def test_known_logits_give_the_known_histogram():
    """Two pairs, three lambdas, pair after pair: (certain, uniform, certain) and (certain, half, half)."""
    predictions = path_predictions([CERTAIN, UNIFORM, CERTAIN, CERTAIN, HALF, HALF], pairs=2, lambdas=3)
    profile = entropy_profile(predictions, num_bins=4)
    # Bins (lo, hi] of quarters of log 4, entropy 0 in the first: log 2 is the upper end of the second.
    assert profile.counts.tolist() == [[2, 0, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0]]
    assert profile.lam.tolist() == [0.0, 0.5, 1.0]
    assert profile.edges.tolist() == pytest.approx([j * math.log(4) / 4 for j in range(5)])
    assert profile.mean.tolist() == pytest.approx([0.0, 1.5 * math.log(2), 0.5 * math.log(2)], abs=1e-12)


@pytest.mark.parametrize("num_bins", [1, 7, 40])
def test_every_lambda_counts_every_pair_once(num_bins):
    logits = 3 * torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    profile = entropy_profile(path_predictions(logits.tolist(), pairs=12, lambdas=5), num_bins=num_bins)
    assert profile.counts.shape == (5, num_bins)
    assert profile.counts.sum(dim=1).tolist() == [12] * 5


def test_uniform_predictions_fall_in_the_last_bin_although_rounding_may_exceed_log_k():
    for classes in (3, 7, 10, 100):
        predictions = path_predictions([[3.0] * classes] * 4, pairs=2, lambdas=2)
        assert entropy_profile(predictions).counts[:, -1].tolist() == [2, 2]


def test_predictions_of_another_set_are_refused_by_name():
    predictions = Predictions(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64), dataset="digits/test")
    with pytest.raises(ValueError, match="needs predictions of a `path:` set, got those of 'digits/test'"):
        entropy_profile(predictions)


def test_a_layout_that_does_not_fit_the_predictions_is_refused():
    predictions = path_predictions([UNIFORM] * 5, pairs=2, lambdas=3)
    with pytest.raises(ValueError, match="path:toy/test"):
        entropy_profile(predictions)
