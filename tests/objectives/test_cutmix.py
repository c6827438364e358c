"""CutMix by hand, and against torchvision and timm for the same lambda, centre and partners."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torchvision.transforms import v2

from regmixup.mixing import Draw, box_lam, sample_beta, sample_box, sample_partners
from regmixup.objectives.cutmix import CutMix
from tests.objectives.cases import CLASSES, batch, conv_net, forwarded, seeded
from tests.references import mixing as slow

SIZE = (6, 8)


@pytest.mark.parametrize("lam", ["batch", "sample"])
@pytest.mark.parametrize("seed", range(2))
def test_loss_is_the_cross_entropy_of_pasted_images_with_labels_by_area(lam, seed):
    objective = CutMix(lam=lam)
    model, (x, y) = conv_net(dtype=torch.float64), batch(5, dtype=torch.float64)
    draw = objective.draw(5, SIZE, seeded(seed))
    boxes, partner = draw.box.expand(5, 4).tolist(), draw.partner.tolist()

    mixed = torch.from_numpy(slow.cutmix(x.numpy(), boxes, partner))
    kept = [slow.kept_share(box, *SIZE) for box in boxes]
    targets = slow.mixed_targets(slow.one_hot(y, CLASSES), kept, partner)
    by_hand = slow.soft_cross_entropy(model(mixed).tolist(), targets).mean()
    torch.testing.assert_close(objective(model, x, y, draw=draw).loss.item(), by_hand, rtol=1e-12, atol=0)


def test_lambda_then_partners_then_box_are_drawn_and_lambda_is_corrected():
    generator = seeded(3)
    lam = sample_beta(0.7, (), generator)
    partner = sample_partners(5, "derangement", generator)
    box = sample_box(lam, SIZE, generator)
    draw = CutMix(alpha=0.7).draw(5, SIZE, seeded(3))
    assert torch.equal(draw.partner, partner)
    assert torch.equal(draw.box, box)
    assert torch.equal(draw.lam, box_lam(box, SIZE))
    assert draw.lam != lam


def test_only_the_pasted_images_are_forwarded():
    model, (x, y) = conv_net(), batch(4)
    calls = forwarded(model)
    draw = Draw(lam=torch.tensor(0.75), partner=torch.tensor([1, 2, 3, 0]), box=torch.tensor([2, 5, 3, 7]))
    out = CutMix()(model, x, y, draw=draw)
    expected = x.clone()
    expected[:, :, 2:5, 3:7] = x[[1, 2, 3, 0]][:, :, 2:5, 3:7]
    assert torch.equal(torch.cat(calls), expected)
    assert out.logits is None
    assert torch.equal(out.parts["mixed"], out.loss)


def test_several_samples_average_the_losses_of_the_single_draws():
    objective = CutMix(samples=3)
    model, (x, y) = conv_net(batch_norm=False, dtype=torch.float64), batch(4, dtype=torch.float64)
    draw = objective.draw(4, SIZE, seeded(1))
    singles = [Draw(draw.lam[i], draw.partner[i], draw.box[i]) for i in range(3)]
    losses = [CutMix()(model, x, y, draw=single).loss.item() for single in singles]
    assert len(set(losses)) == 3
    torch.testing.assert_close(objective(model, x, y, draw=draw).loss.item(), np.mean(losses), rtol=1e-12, atol=0)


def test_torchvision_gives_the_same_boxes_images_labels_and_loss(monkeypatch):
    """torchvision mixes image i with image i - 1; its lambda and centre (column, then row) are fed to it."""
    x, y = batch(5)
    for seed in range(20):
        lam = sample_beta(1.0, (), seeded(seed))
        box = sample_box(lam, SIZE, seeded(seed))
        row, column = torch.rand(2, dtype=torch.float64, generator=seeded(seed)).tolist()
        centre = iter([torch.tensor([int(8 * column)]), torch.tensor([int(6 * row)])])

        transform = v2.CutMix(num_classes=CLASSES)
        transform._dist = SimpleNamespace(sample=lambda shape, lam=lam: lam)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "randint", lambda *_, centre=centre, **__: next(centre))
            their_x, their_y = transform(x, y)

        model = conv_net()
        calls = forwarded(model)
        draw = Draw(lam=box_lam(box, SIZE), partner=torch.arange(5).roll(1), box=box)
        loss = CutMix()(model, x, y, draw=draw).loss
        assert torch.equal(torch.cat(calls), their_x)
        torch.testing.assert_close(loss, F.cross_entropy(model(their_x), their_y))
