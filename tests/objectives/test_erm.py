"""ERM: mean cross-entropy of the clean images."""

import torch
from torch.nn import functional as F

from regmixup.objectives.erm import ERM
from tests.objectives.cases import batch, conv_net, forwarded, gradients
from tests.references import mixing as slow


def test_loss_equals_the_cross_entropy_of_torch_with_its_gradient():
    model, (x, y) = conv_net(), batch()
    calls = forwarded(model)
    loss = ERM()(model, x, y).loss
    assert torch.equal(torch.cat(calls), x)
    expected = F.cross_entropy(model(x), y)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients(model, loss), gradients(model, expected))


def test_probabilities_as_labels_equal_the_slow_twin():
    model, (x, _) = conv_net(dtype=torch.float64), batch(dtype=torch.float64)
    soft = torch.rand(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(1)
    by_hand = slow.soft_cross_entropy(model(x).tolist(), soft.tolist()).mean()
    torch.testing.assert_close(ERM()(model, x, soft).loss.item(), by_hand, rtol=1e-12, atol=0)
