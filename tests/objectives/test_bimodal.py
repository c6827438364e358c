"""Bimodal: RegMixup in expectation over the coins, exactly; and what the coins cost in variance."""

from itertools import product

import pytest
import torch

from regmixup.losses import Focal
from regmixup.mixing import Draw
from regmixup.objectives.bimodal import Bimodal, CoinDraw
from regmixup.objectives.mixup import Mixup
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


def over_all_coins(objective, model, x, y, lam, partner):
    """Mean and variance of the loss and its gradient over the coins, for given lambda and partners."""
    p = objective.clean_probability
    outcomes, probabilities = [], []
    for coins in product([True, False], repeat=partner.numel()):
        stays = torch.tensor(coins).reshape(partner.shape)
        outcomes.append(value(objective, model, x, y, CoinDraw(lam=lam, partner=partner, stays=stays)))
        probabilities.append(p ** sum(coins) * (1 - p) ** (len(coins) - sum(coins)))
    return mean_and_variance(outcomes, probabilities)


# ----------------------------------------------------------------------------------------------- the estimator


@pytest.mark.parametrize(
    ("probability", "fields"), [(0.5, {}), (0.75, {"eta": 0.3, "loss": Focal()}), (0.2, {"eta": 2.0, "scale": "sum"})]
)
def test_over_all_coins_the_mean_is_regmixup_with_its_gradient(probability, fields):
    """For every cycle and several lambdas, so it is also the mean over all of the randomness."""
    model, (x, y) = plain_net(), exact_batch(3)
    for partner in cycles(3):
        for lam in LAMBDAS:
            mean, _ = over_all_coins(Bimodal(clean_probability=probability, **fields), model, x, y, lam, partner)
            assert_equal(mean, value(RegMixup(**fields), model, x, y, Draw(lam=lam, partner=partner)))


@pytest.mark.parametrize("fields", [{"lam": "sample", "pairing": "permutation"}, {"samples": 2}])
def test_the_same_holds_for_one_lambda_per_image_and_for_several_samples(fields):
    objective = Bimodal(alpha=1, clean_probability=0.6, **fields)
    model, (x, y) = plain_net(), exact_batch(3)
    draw = objective.draw(3, SIZE, seeded(2))
    mean, _ = over_all_coins(objective, model, x, y, draw.lam, draw.partner)
    assert_equal(mean, value(RegMixup(**fields), model, x, y, Draw(lam=draw.lam, partner=draw.partner)))


@pytest.mark.parametrize(("probability", "eta"), [(0.75, 1), (0.3, 3)])
def test_the_variance_over_the_coins_has_its_closed_form(probability, eta):
    """p (1 - p) / N^2 sum_i (gamma c_i / p - (1 - gamma) m_i / (1 - p))^2, for the loss and every derivative."""
    model, (x, y) = plain_net(), exact_batch(4)
    lam, partner = LAMBDAS[1], torch.arange(4).roll(1)
    _, variance = over_all_coins(Bimodal(eta=eta, clean_probability=probability), model, x, y, lam, partner)
    clean, mixed = image_by_image(model, x, y, lam, partner)
    gamma = 1 / (1 + eta)
    difference = gamma * clean / probability - (1 - gamma) * mixed / (1 - probability)
    assert_equal(variance, probability * (1 - probability) / 16 * (difference**2).sum(dim=0))


def test_the_coins_fall_with_the_given_probability_for_every_image_on_its_own():
    """Three standard deviations of the share of 4000 coins are 0.022, and of 2000 pairs 0.034."""
    draw = Bimodal(clean_probability=0.7, samples=2).draw(2000, SIZE, seeded())
    assert draw.stays.dtype == torch.bool
    assert draw.stays.double().mean().item() == pytest.approx(0.7, abs=0.022)
    assert (draw.stays[0] & draw.stays[1]).double().mean().item() == pytest.approx(0.49, abs=0.034)


# ---------------------------------------------------------------------------------------------- images and parts


def test_one_pass_holds_the_kept_images_untouched_and_the_others_mixed():
    model, (x, y) = conv_net(), batch(4)
    calls = forwarded(model)
    lam, partner, stays = LAMBDAS[0], torch.tensor([1, 2, 3, 0]), torch.tensor([True, False, True, False])
    out = Bimodal()(model, x, y, draw=CoinDraw(lam=lam, partner=partner, stays=stays))
    assert len(calls) == 1
    assert torch.equal(calls[0][stays], x[stays])
    torch.testing.assert_close(calls[0][~stays], 0.1 * x[[1, 3]] + 0.9 * x[[2, 0]])
    assert out.logits is None


@pytest.mark.parametrize(("scale", "factor"), [("mean", 1), ("sum", 4)])
def test_parts_are_estimates_of_both_terms_and_make_up_the_loss(scale, factor):
    objective = Bimodal(eta=3, scale=scale, clean_probability=0.75)
    model, (x, y) = plain_net(), exact_batch(5)
    draw = objective.draw(5, SIZE, seeded(4))
    clean, mixed = (losses[:, 0] for losses in image_by_image(model, x, y, draw.lam, draw.partner))
    out = objective(model, x, y, draw=draw)
    assert 0 < draw.stays.sum() < 5
    assert list(out.parts) == ["clean", "mixed"]
    assert_equal(out.parts["clean"], clean[draw.stays].sum() / 5 / 0.75)
    assert_equal(out.parts["mixed"], mixed[~draw.stays].sum() / 5 / 0.25)
    assert_equal(out.loss.detach(), factor * (out.parts["clean"] / 4 + 3 * out.parts["mixed"] / 4))


# ---------------------------------------------------------------------------------------------------- errors


def test_wrong_fields_and_a_draw_without_coins_are_refused():
    with pytest.raises(ValueError, match=r"^clean_probability must be a finite number > 0 and < 1, got 1$"):
        Bimodal(clean_probability=1)
    with pytest.raises(ValueError, match=r"draw\.stays must have shape \(4,\) for Bimodal.*, got None"):
        Bimodal()(conv_net(), *batch(4), draw=Mixup().draw(4, SIZE))


@pytest.mark.parametrize("samples", [1, 2])
def test_parts_of_a_batch_share_lambda_and_not_the_coins(samples):
    """Alike in all parts, they would add as many times the variance as there are parts."""
    objective = Bimodal(samples=samples)
    first, second = (objective.draw_part(64, 8, shared=seeded(0), own=seeded(part)) for part in (1, 2))
    assert torch.equal(first.lam, second.lam)
    agree = (first.stays == second.stays).double().mean().item()
    assert 0.2 < agree < 0.8
    generator = seeded(3)
    alone = objective.draw_part(64, 8, shared=generator, own=generator)  # as where a batch is one part
    assert torch.equal(alone.stays, objective.draw(64, 8, seeded(3)).stays)
