"""HalfRegMixup: RegMixup in expectation, exactly, for half of the images; and what that costs in variance."""

from collections import Counter
from itertools import combinations

import pytest
import torch
from scipy import stats

from regmixup.losses import Focal
from regmixup.mixing import Draw
from regmixup.objectives.erm import ERM
from regmixup.objectives.half_regmixup import HalfRegMixup, SplitDraw
from regmixup.objectives.regmixup import RegMixup
from tests.objectives.cases import batch, conv_net, forwarded, seeded
from tests.objectives.expectations import (
    LAMBDAS,
    SIZE,
    assert_equal,
    cycles,
    exact_batch,
    image_by_image,
    mean_and_variance,
    plain_net,
    value,
)


def splits(batch_size, num_clean):
    """Every choice of the clean images, and the others."""
    everyone = set(range(batch_size))
    for clean in combinations(range(batch_size), num_clean):
        yield torch.tensor(clean), torch.tensor(sorted(everyone - set(clean)))


def over_all_splits(objective, model, x, y, lam, partner):
    """Mean and variance of the loss and its gradient over the splits, for given lambda and partners."""
    outcomes = [
        value(objective, model, x, y, SplitDraw(lam=lam, partner=partner, clean=clean, mixed=mixed))
        for clean, mixed in splits(len(x), objective.num_clean(len(x)))
    ]
    return mean_and_variance(outcomes, [1 / len(outcomes)] * len(outcomes))


# ----------------------------------------------------------------------------------------------- the estimator


@pytest.mark.parametrize(
    ("batch_size", "share", "fields"),
    [
        (4, 0.5, {}),
        (4, 0.25, {}),
        (3, 0.5, {"eta": 0.3, "loss": Focal()}),
        (3, 0.5, {"eta": 2.0, "scale": "sum", "passes": "separate"}),
    ],
)
def test_over_all_splits_the_mean_is_regmixup_with_its_gradient(batch_size, share, fields):
    """For every cycle and several lambdas, so it is also the mean over all of the randomness."""
    model, (x, y) = plain_net(), exact_batch(batch_size)
    for partner in cycles(batch_size):
        for lam in LAMBDAS:
            mean, _ = over_all_splits(HalfRegMixup(share=share, **fields), model, x, y, lam, partner)
            assert_equal(mean, value(RegMixup(**fields), model, x, y, Draw(lam=lam, partner=partner)))


@pytest.mark.parametrize("fields", [{"lam": "sample", "pairing": "permutation"}, {"samples": 2}])
def test_the_same_holds_for_one_lambda_per_image_and_for_several_samples(fields):
    objective = HalfRegMixup(alpha=1, **fields)
    model, (x, y) = plain_net(), exact_batch(4)
    draw = objective.draw(4, SIZE, seeded(2))
    mean, _ = over_all_splits(objective, model, x, y, draw.lam, draw.partner)
    assert_equal(mean, value(RegMixup(**fields), model, x, y, Draw(lam=draw.lam, partner=draw.partner)))


def test_all_splits_are_drawn_equally_often_whatever_the_partners():
    """Six splits of four images and six cycles: 36 cells of 50 draws expected."""
    generator, cells = seeded(3), Counter()
    for _ in range(1800):
        draw = HalfRegMixup().draw(4, SIZE, generator)
        cells[tuple(sorted(draw.clean.tolist())), tuple(draw.partner.tolist())] += 1
        assert sorted([*draw.clean.tolist(), *draw.mixed.tolist()]) == [0, 1, 2, 3]
    assert len(cells) == 36
    assert stats.chisquare(list(cells.values())).pvalue > 0.01


@pytest.mark.parametrize(("batch_size", "share", "eta"), [(4, 0.5, 1), (5, 0.5, 3), (5, 0.2, 1), (4, 0.75, 3)])
def test_the_variance_over_the_splits_is_that_of_a_mean_without_replacement(batch_size, share, eta):
    """(1/n - 1/N) Var(d_i), d_i = gamma c_i - (1 - gamma) n / (N - n) m_i, for the loss and every derivative."""
    objective = HalfRegMixup(eta=eta, share=share)
    model, (x, y) = plain_net(), exact_batch(batch_size)
    lam, partner = LAMBDAS[1], torch.arange(batch_size).roll(1)
    _, variance = over_all_splits(objective, model, x, y, lam, partner)
    clean, mixed = image_by_image(model, x, y, lam, partner)
    n, gamma = objective.num_clean(batch_size), 1 / (1 + eta)
    difference = gamma * clean - (1 - gamma) * n / (batch_size - n) * mixed
    assert_equal(variance, (1 / n - 1 / batch_size) * difference.var(dim=0))
    if (batch_size, share, eta) == (4, 0.5, 1):
        assert_equal(variance, (clean - mixed).var(dim=0) / 16)


# ------------------------------------------------------------------------------------------------- its size


@pytest.mark.parametrize(
    ("share", "sizes"), [(0.5, [1, 1, 2, 2, 2, 3]), (0.01, [1, 1, 1, 1, 1, 1]), (0.99, [1, 1, 2, 3, 4, 5])]
)
def test_at_least_one_image_is_clean_and_one_is_mixed(share, sizes):
    assert [HalfRegMixup(share=share).num_clean(batch_size) for batch_size in range(1, 7)] == sizes


def test_as_many_images_are_forwarded_as_the_batch_holds():
    model, (x, y) = conv_net(), batch(7)
    calls = forwarded(model)
    draw = HalfRegMixup().draw(7, SIZE, seeded())
    out = HalfRegMixup(passes="separate")(model, x, y, draw=draw)
    assert [len(call) for call in calls] == [4, 3]
    assert torch.equal(calls[0], x[draw.clean])
    assert out.logits is None


def test_a_batch_of_one_pairs_with_itself_so_the_loss_is_the_clean_one():
    model, (x, y), objective = plain_net(), exact_batch(1), HalfRegMixup(eta=2, scale="sum")
    loss = value(objective, model, x, y, objective.draw(1, SIZE, seeded()))
    assert_equal(loss, 3 * value(ERM(), model, x, y, None))


def test_wrong_fields_and_a_draw_made_for_others_are_refused():
    with pytest.raises(ValueError, match=r"^share must be a finite number > 0 and < 1, got 1$"):
        HalfRegMixup(share=1)
    for drawn_by, message in ((RegMixup(), "None"), (HalfRegMixup(share=0.25), r"shape \(1,\)")):
        with pytest.raises(ValueError, match=rf"draw\.clean must have shape \(2,\) for HalfRegMixup.*, got {message}"):
            HalfRegMixup()(conv_net(), *batch(4), draw=drawn_by.draw(4, SIZE))
