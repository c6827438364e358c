"""Label smoothing: cross-entropy with targets (1 - s) onehot(y) + s / K."""

import math

import pytest
import torch
from torch.nn import functional as F

from regmixup.objectives.erm import ERM
from regmixup.objectives.label_smoothing import LabelSmoothing
from tests.objectives.cases import batch, conv_net, gradients
from tests.references import mixing as slow


@pytest.mark.parametrize("smoothing", [0.0, 0.05, 0.1, 0.9])
def test_loss_equals_the_explicit_soft_label(smoothing):
    model, (x, y) = conv_net(dtype=torch.float64), batch(dtype=torch.float64)
    targets = (1 - smoothing) * slow.one_hot(y, 5) + smoothing / 5
    by_hand = slow.soft_cross_entropy(model(x).tolist(), targets).mean()
    loss = LabelSmoothing(smoothing=smoothing)(model, x, y).loss
    torch.testing.assert_close(loss.item(), by_hand, rtol=1e-12, atol=0)


def test_loss_equals_the_smoothed_cross_entropy_of_torch_with_its_gradient():
    model, (x, y) = conv_net(), batch()
    loss = LabelSmoothing(smoothing=0.2)(model, x, y).loss
    expected = F.cross_entropy(model(x), y, label_smoothing=0.2)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients(model, loss), gradients(model, expected))


def test_no_smoothing_is_erm_bit_for_bit():
    x, y = batch()
    plain, smooth = conv_net(), conv_net()
    plain_loss, smooth_loss = ERM()(plain, x, y).loss, LabelSmoothing(smoothing=0)(smooth, x, y).loss
    assert torch.equal(plain_loss, smooth_loss)
    assert all(map(torch.equal, gradients(plain, plain_loss), gradients(smooth, smooth_loss)))


def test_the_default_is_one_tenth():
    assert LabelSmoothing().smoothing == 0.1


def test_logits_are_those_of_the_clean_images():
    model, (x, y) = conv_net(), batch()
    out = LabelSmoothing()(model, x, y)
    assert torch.equal(out.logits, model(x))
    assert torch.equal(out.parts["clean"], out.loss)


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, math.nan])
def test_smoothing_must_lie_in_the_half_open_unit_interval(value):
    with pytest.raises(ValueError, match=rf"^smoothing must be a finite number >= 0 and < 1, got {value!r}$"):
        LabelSmoothing(smoothing=value)
