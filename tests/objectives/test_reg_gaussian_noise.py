"""RegGaussianNoise by hand: the noise, both scales, the labels kept."""

import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from regmixup.objectives.mixup import Mixup
from regmixup.objectives.reg_gaussian_noise import NoiseDraw, RegGaussianNoise
from tests.objectives.cases import batch, conv_net, forwarded, gradients, seeded

SIZE = (3, 6, 8)


@pytest.mark.parametrize(
    ("samples", "eta", "scale", "passes"),
    [(1, 0.1, "mean", "joint"), (3, 3, "sum", "separate"), (2, 1, "mean", "joint")],
)
def test_the_loss_follows_equation_3_with_the_label_kept(samples, eta, scale, passes):
    objective = RegGaussianNoise(sigma=0.4, samples=samples, eta=eta, scale=scale, passes=passes)
    model, (x, y) = conv_net(batch_norm=False, dtype=torch.float64), batch(5, dtype=torch.float64)
    draw = objective.draw(5, SIZE, seeded())
    noises = draw.noise.double().reshape(samples, *x.shape)
    noisy = torch.stack([F.cross_entropy(model(x + 0.4 * noise), y) for noise in noises]).mean()
    clean = F.cross_entropy(model(x), y)
    expected = (clean + eta * noisy) / (1 + eta if scale == "mean" else 1)
    out = objective(model, x, y, draw=draw)
    torch.testing.assert_close(out.loss, expected)
    torch.testing.assert_close(gradients(model, out.loss), gradients(model, expected))
    torch.testing.assert_close(out.parts, {"clean": clean.detach(), "noisy": noisy.detach()})
    torch.testing.assert_close(out.logits, model(x))


def test_noise_is_standard_normal_and_its_own_for_every_sample_image_channel_and_pixel():
    noise = RegGaussianNoise(samples=2).draw(5, SIZE, seeded()).noise
    assert (noise.shape, noise.dtype) == ((10, *SIZE), torch.float32)
    assert noise.unique().numel() > 0.999 * noise.numel()
    assert stats.kstest(noise.flatten().numpy(), stats.norm.cdf).pvalue > 0.05


def test_images_in_half_precision_take_the_noise_in_float32():
    model, (x, y) = conv_net(dtype=torch.bfloat16), batch(dtype=torch.bfloat16)
    calls = forwarded(model)
    objective = RegGaussianNoise(sigma=0.01, passes="separate")
    draw = objective.draw(7, SIZE, seeded())
    objective(model, x, y, draw=draw)
    assert torch.equal(calls[1], (x.float() + 0.01 * draw.noise).bfloat16())
    assert not torch.equal(calls[1], x + (0.01 * draw.noise).bfloat16())


@pytest.mark.parametrize("draw", [Mixup().draw(4, SIZE), NoiseDraw(noise=torch.zeros(4, 1, 6, 8))])
def test_a_draw_without_noise_for_these_images_is_refused(draw):
    with pytest.raises(ValueError, match=r"draw\.noise must have shape \(4, 3, 6, 8\) for RegGaussianNoise.*, got "):
        RegGaussianNoise()(conv_net(), *batch(4), draw=draw)
    with pytest.raises(ValueError, match=r"^image_size must be \(channels, height, width\) or x.shape\[1:\], got 8$"):
        RegGaussianNoise().draw(4, 8)
    with pytest.raises(ValueError, match=r"^sigma must be a finite number >= 0, got -1$"):
        RegGaussianNoise(sigma=-1)
