"""Mixup by hand, and against torchvision for the same lambda and partners."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torchvision.transforms import v2

from regmixup.mixing import Draw
from regmixup.objectives.mixup import Mixup
from tests.objectives.cases import CLASSES, batch, conv_net, forwarded, seeded
from tests.references import mixing as slow


@pytest.mark.parametrize(
    ("lam", "pairing", "batch_size"),
    [("batch", "derangement", 5), ("sample", "permutation", 5), ("sample", "derangement", 1)],
)
def test_loss_is_the_cross_entropy_of_mixed_images_with_mixed_labels(lam, pairing, batch_size):
    objective = Mixup(alpha=1.0, lam=lam, pairing=pairing)
    model, (x, y) = conv_net(dtype=torch.float64), batch(batch_size, dtype=torch.float64)
    draw = objective.draw(batch_size, (6, 8), seeded(2))
    weights, partner = draw.lam.expand(batch_size).tolist(), draw.partner.tolist()

    mixed = torch.from_numpy(slow.mixup(x.numpy(), weights, partner))
    targets = slow.mixed_targets(slow.one_hot(y, CLASSES), weights, partner)
    by_hand = slow.soft_cross_entropy(model(mixed).tolist(), targets).mean()
    torch.testing.assert_close(objective(model, x, y, draw=draw).loss.item(), by_hand, rtol=1e-12, atol=0)


def test_soft_labels_are_mixed_like_the_images():
    model, (x, _) = conv_net(dtype=torch.float64), batch(3, dtype=torch.float64)
    y = torch.tensor([[0.5, 0.5, 0, 0, 0], [0, 0, 1, 0, 0], [0.2, 0.2, 0.2, 0.2, 0.2]], dtype=torch.float64)
    draw = Draw(lam=torch.tensor(0.3, dtype=torch.float64), partner=torch.tensor([1, 2, 0]))
    mixed, targets = 0.3 * x + 0.7 * x[[1, 2, 0]], 0.3 * y + 0.7 * y[[1, 2, 0]]
    expected = F.cross_entropy(model(mixed), targets)
    torch.testing.assert_close(Mixup()(model, x, y, draw=draw).loss, expected)


def test_several_samples_average_the_losses_of_the_single_draws():
    objective = Mixup(alpha=1.0, samples=3)
    model, (x, y) = conv_net(batch_norm=False, dtype=torch.float64), batch(4, dtype=torch.float64)
    draw = objective.draw(4, (6, 8), seeded())
    singles = [Mixup()(model, x, y, draw=Draw(draw.lam[i], draw.partner[i])).loss.item() for i in range(3)]
    assert len(set(singles)) == 3
    torch.testing.assert_close(objective(model, x, y, draw=draw).loss.item(), np.mean(singles), rtol=1e-12, atol=0)


def test_torchvision_gives_the_same_images_labels_and_loss(monkeypatch):
    """torchvision mixes image i with image i - 1."""
    transform = v2.MixUp(alpha=1.0, num_classes=CLASSES)
    monkeypatch.setattr(transform, "make_params", lambda inputs: {"lam": 0.3})
    model, (x, y) = conv_net(), batch(5)
    calls = forwarded(model)
    draw = Draw(lam=torch.tensor(0.3, dtype=torch.float64), partner=torch.arange(5).roll(1))
    loss = Mixup()(model, x, y, draw=draw).loss

    their_x, their_y = transform(x, y)
    torch.testing.assert_close(calls, [their_x])
    torch.testing.assert_close(loss, F.cross_entropy(model(their_x), their_y))
