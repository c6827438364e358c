"""CutMix by hand, and against torchvision and timm for the same lambda, centre and partners."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F
from torchvision.transforms import v2

from regmixup.mixing import Draw, box_lam, sample_beta, sample_box
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
