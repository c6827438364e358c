"""Drawing and mixing against closed forms, statistical tests and the slow twins of `tests.references.mixing`."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from regmixup.mixing import (
    Draw,
    box_lam,
    cutmix,
    draw_pairs,
    mixup,
    sample_beta,
    sample_box,
    sample_dirichlet,
    sample_partners,
    take_boxes,
    take_pairs,
)
from tests.references import mixing as slow

quick = settings(deadline=None, derandomize=True, max_examples=50)
seeds = st.integers(0, 10_000)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(seed, batch_size, channels=2, height=5, width=6, dtype=torch.float64):
    return torch.rand(batch_size, channels, height, width, dtype=dtype, generator=seeded(seed))


# ---------------------------------------------------------------------------------------------------- lambda


@pytest.mark.parametrize("alpha", [0.1, 1, 20.0])
def test_lambda_follows_the_beta_distribution(alpha):
    lam = sample_beta(alpha, (4000,), seeded())
    assert stats.kstest(lam.numpy(), stats.beta(alpha, alpha).cdf).pvalue > 0.05


@pytest.mark.parametrize("alpha", [0.1, 20])
def test_one_uniform_number_is_used_per_lambda(alpha):
    drawn, reference = seeded(3), seeded(3)
    lam = sample_beta(alpha, (7,), drawn)
    uniform = torch.rand(7, dtype=torch.float64, generator=reference)
    assert torch.equal(drawn.get_state(), reference.get_state())
    torch.testing.assert_close(torch.from_numpy(stats.beta(alpha, alpha).cdf(lam.numpy())), uniform)


@pytest.mark.parametrize("alpha", [1e-8, 1e8])
def test_extreme_alpha_stays_inside_the_unit_interval(alpha):
    lam = sample_beta(alpha, (2000,), seeded())
    assert bool(((lam >= 0) & (lam <= 1)).all())


# ------------------------------------------------------------------------------------------------- Dirichlet


@pytest.mark.parametrize("alpha", [0.2, 1, 5.0])
def test_dirichlet_weights_have_beta_marginals_and_the_known_covariance(alpha):
    """w_j ~ Beta(alpha, (k - 1) alpha), and cov(w_i, w_j) = -1 / (k^2 (k alpha + 1)), here for k = 3."""
    weights = sample_dirichlet(alpha, 3, (20_000,), seeded()).numpy()
    for column in weights.T:
        assert stats.kstest(column, stats.beta(alpha, 2 * alpha).cdf).pvalue > 0.05
    assert np.cov(weights.T)[0, 1] == pytest.approx(-1 / (9 * (3 * alpha + 1)), rel=0.06)


@pytest.mark.parametrize("alpha", [1e-8, 0.1, 1e8])
def test_dirichlet_weights_sum_to_one_even_for_extreme_alpha(alpha):
    weights = sample_dirichlet(alpha, 3, (500,), seeded())
    assert weights.dtype == torch.float64
    assert bool((weights >= 0).all())
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(500, dtype=torch.float64))


# -------------------------------------------------------------------------------------------------- partners


@quick
@given(batch_size=st.integers(1, 40), seed=seeds)
def test_a_derangement_is_one_cycle_through_the_whole_batch(batch_size, seed):
    partner = sample_partners(batch_size, "derangement", seeded(seed))
    visited, position = [], 0
    for _ in range(batch_size):
        visited.append(position)
        position = int(partner[position])
    assert position == 0
    assert sorted(visited) == list(range(batch_size))
    assert partner.dtype == torch.int64


@pytest.mark.parametrize(("pairing", "number"), [("derangement", 6), ("permutation", 24)])
def test_all_pairings_of_four_images_are_equally_likely(pairing, number):
    """Four images have 3! = 6 cycles and 4! = 24 permutations."""
    generator = seeded(2)
    counts = Counter(tuple(sample_partners(4, pairing, generator).tolist()) for _ in range(2400))
    assert len(counts) == number
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


# ------------------------------------------------------------------------------------------------------ boxes


@quick
@given(lam=st.floats(0, 1), height=st.integers(1, 12), width=st.integers(1, 12), seed=seeds)
def test_box_and_the_share_of_pixels_outside_equal_the_slow_twin(lam, height, width, seed):
    box = sample_box(torch.tensor(lam, dtype=torch.float64), (height, width), seeded(seed))
    row, column = torch.rand(2, dtype=torch.float64, generator=seeded(seed)).tolist()
    assert tuple(box.tolist()) == slow.cutmix_box(lam, height, width, int(height * row), int(width * column))
    kept = box_lam(box, (height, width))
    assert kept.dtype == torch.float64
    assert kept.item() == pytest.approx(slow.kept_share(box.tolist(), height, width), abs=1e-12)


# ----------------------------------------------------------------------------------------------------- mixing


@quick
@given(batch_size=st.integers(1, 5), per_sample=st.booleans(), seed=seeds)
def test_mixup_equals_the_slow_twin(batch_size, per_sample, seed):
    x = images(seed, batch_size)
    lam = sample_beta(1.0, (batch_size,) if per_sample else (), seeded(seed))
    partner = sample_partners(batch_size, "permutation", seeded(seed))
    expected = slow.mixup(x.numpy(), lam.expand(batch_size).tolist(), partner.tolist())
    torch.testing.assert_close(mixup(x, lam, partner), torch.from_numpy(expected), rtol=1e-14, atol=1e-15)


@quick
@given(batch_size=st.integers(1, 5), per_sample=st.booleans(), seed=seeds)
def test_cutmix_equals_the_slow_twin(batch_size, per_sample, seed):
    x = images(seed, batch_size)
    lam = sample_beta(1.0, (batch_size,) if per_sample else (), seeded(seed))
    box = sample_box(lam, (5, 6), seeded(seed))
    partner = sample_partners(batch_size, "permutation", seeded(seed))
    expected = slow.cutmix(x.numpy(), box.expand(batch_size, 4).tolist(), partner.tolist())
    assert torch.equal(cutmix(x, box, partner), torch.from_numpy(expected))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_mixing_keeps_type_and_channels_last_layout(dtype):
    x = images(0, 4, channels=3, dtype=dtype).to(memory_format=torch.channels_last)
    lam, partner = torch.tensor(0.3, dtype=torch.float64), torch.tensor([1, 2, 3, 0])
    for mixed in (mixup(x, lam, partner), cutmix(x, torch.tensor([1, 3, 0, 4]), partner)):
        assert mixed.dtype == dtype
        assert mixed.is_contiguous(memory_format=torch.channels_last)


# ------------------------------------------------------------------------------------------------- the rest


def test_draw_moves_its_tensors_and_keeps_the_rest():
    draw = Draw(lam=torch.ones(2), partner=torch.tensor([1, 0]), branch=1)
    moved = draw.to(torch.device("meta"))
    assert (moved.lam.device.type, moved.partner.device.type) == ("meta", "meta")
    assert (moved.box, moved.branch) == (None, 1)


def of(lam, samples):
    """What decides the shapes of a draw."""
    return SimpleNamespace(lam=lam, samples=samples)


@pytest.mark.parametrize(("lam", "samples", "shape"), [("batch", 1, ()), ("sample", 1, (5,)), ("sample", 3, (3, 5))])
def test_pairs_and_boxes_are_drawn_one_sample_after_the_other_and_read_back_as_one_long_batch(lam, samples, shape):
    fields, generator = (5, 1.0, lam, "derangement"), seeded()
    drawn = draw_pairs(*fields, samples, seeded(), boxes_in=(6, 8))
    singles = [draw_pairs(*fields, generator=generator, boxes_in=(6, 8)) for _ in range(samples)]
    assert (drawn.lam.shape, drawn.box.shape) == (shape, (*shape, 4))
    weights, partner, box = take_boxes(drawn, torch.zeros(5, 3, 6, 8), of(lam, samples))
    assert torch.equal(weights, torch.cat([single.lam.expand(5) for single in singles]))
    assert torch.equal(partner, torch.cat([single.partner for single in singles]))
    assert torch.equal(box, torch.cat([single.box.expand(5, 4) for single in singles]))
    pairs = draw_pairs(*fields, samples, seeded())
    assert [tuple(part.shape) for part in take_pairs(pairs, 5, of(lam, samples))] == [(5 * samples,)] * 2
    assert pairs.box is None
    with pytest.raises(ValueError, match=r"^draw\.lam must have shape \(2, 5\) for .* and this batch, got shape"):
        take_pairs(pairs, 5, of("sample", 2))
