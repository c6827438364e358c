"""Label smoothing: cross-entropy with targets (1 - s) onehot(y) + s / K."""

import pytest
import torch
from torch.nn import functional as F

from regmixup.objectives.label_smoothing import LabelSmoothing
from tests.objectives.cases import batch, conv_net
from tests.references import mixing as slow


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_loss_equals_the_explicit_soft_label(smoothing):
    model, (x, y) = conv_net(dtype=torch.float64), batch(dtype=torch.float64)
    targets = (1 - smoothing) * slow.one_hot(y, 5) + smoothing / 5
    by_hand = slow.soft_cross_entropy(model(x).tolist(), targets).mean()
    loss = LabelSmoothing(smoothing=smoothing)(model, x, y).loss
    torch.testing.assert_close(loss.item(), by_hand, rtol=1e-12, atol=0)
    torch.testing.assert_close(loss, F.cross_entropy(model(x), y, label_smoothing=smoothing))


def test_smoothing_must_be_below_one():
    with pytest.raises(ValueError, match=r"^smoothing must be a finite number >= 0 and < 1, got 1$"):
        LabelSmoothing(smoothing=1)
