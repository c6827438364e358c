"""Vicinal by hand: both terms, scales and passes, the label kept."""

import pytest
import torch
from torch.nn import functional as F

from regmixup.augmentations import Cutout, GaussianNoise, PixMix
from regmixup.augmentations.basic import NoiseDraw
from regmixup.objectives.mixup import Mixup
from regmixup.objectives.vicinal import Vicinal
from tests.objectives.cases import batch, conv_net, forwarded, gradients, seeded

SIZE = (3, 6, 8)


@pytest.mark.parametrize(
    ("samples", "eta", "scale", "passes"),
    [(1, 0.1, "mean", "joint"), (3, 3, "sum", "separate"), (2, 1, "mean", "joint")],
)
@pytest.mark.parametrize("transform", [GaussianNoise(0.4), Cutout(3), PixMix()], ids=lambda t: type(t).__name__)
def test_the_loss_follows_equation_3_with_the_label_kept(transform, samples, eta, scale, passes):
    objective = Vicinal(transform, samples=samples, eta=eta, scale=scale, passes=passes)
    model, (x, y) = conv_net(batch_norm=False, dtype=torch.float64), batch(5, dtype=torch.float64)
    draw = objective.draw(5, SIZE, seeded())
    changed = transform.apply(torch.cat([x] * samples), draw).split(5)
    vicinal = torch.stack([F.cross_entropy(model(images), y) for images in changed]).mean()
    clean = F.cross_entropy(model(x), y)
    expected = (clean + eta * vicinal) / (1 + eta if scale == "mean" else 1)
    out = objective(model, x, y, draw=draw)
    torch.testing.assert_close(out.loss, expected)
    torch.testing.assert_close(gradients(model, out.loss), gradients(model, expected))
    torch.testing.assert_close(out.parts, {"clean": clean.detach(), "vicinal": vicinal.detach()})
    torch.testing.assert_close(out.logits, model(x))
    assert abs(clean - vicinal) > 1e-4


def test_each_sample_is_another_version():
    model, (x, y) = conv_net(), batch()
    calls = forwarded(model)
    Vicinal(PixMix(), samples=2)(model, x, y, seeded())
    clean, first, second = calls[0].split(7)
    assert torch.equal(clean, x)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("draw", [Mixup().draw(4, SIZE), NoiseDraw(noise=torch.zeros(4, 1, 6, 8))])
def test_a_draw_without_noise_for_these_images_is_refused(draw):
    with pytest.raises(ValueError, match=r"draw\.noise must have shape \(4, 3, 6, 8\) for GaussianNoise.*, got "):
        Vicinal(GaussianNoise())(conv_net(), *batch(4), draw=draw)


def test_eta_may_follow_the_transform_without_its_name():
    assert Vicinal(PixMix(), 2.0) == Vicinal(PixMix(), eta=2.0)


def test_a_transform_must_be_an_augmentation():
    with pytest.raises(ValueError, match=r"^transform must be an Augmentation such as rm.PixMix\(\), got 'pixmix'$"):
        Vicinal("pixmix")
