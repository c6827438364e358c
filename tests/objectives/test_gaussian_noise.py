"""Gaussian noise: the vicinal risk against quadrature, the noise itself, and its regularising form."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from regmixup.losses import image_losses
from regmixup.objectives.erm import ERM
from regmixup.objectives.gaussian_noise import GaussianNoise, NoiseDraw, add_noise
from regmixup.objectives.mixup import Mixup
from regmixup.objectives.reg_gaussian_noise import RegGaussianNoise
from tests.objectives.cases import batch, conv_net, forwarded, gradients, seeded

SIZE = (3, 6, 8)


def plain_net():
    """Without batch norm an image's logits do not depend on its neighbours."""
    return conv_net(batch_norm=False, dtype=torch.float64)


def exact_batch(batch_size=5):
    return batch(batch_size, dtype=torch.float64)


# ------------------------------------------------------------------------------------------------- the risk


def expected_risk(weight, bias, x, y, sigma):
    """E CE for logits (0, w x + b), whose difference z is normal: the mean of log(1 + exp(-z)) for class 1.

    z has mean w x + b and standard deviation sigma |w|; the integral is taken by 60-point Gauss-Hermite quadrature.
    """
    nodes, node_weights = np.polynomial.hermite.hermgauss(60)
    risks = []
    for image, label in zip(x.flatten(1).numpy(), y.tolist(), strict=True):
        z = weight @ image + bias + sigma * np.linalg.norm(weight) * math.sqrt(2) * nodes
        risks.append(node_weights @ np.logaddexp(0, -z if label == 1 else z) / math.sqrt(math.pi))
    return np.mean(risks)


@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_many_samples_tend_to_the_exact_vicinal_risk(sigma):
    """The mean of 20000 draws lies within four standard errors of the integral, and far from the risk without noise."""
    x, y = torch.rand(3, 1, 1, 2, dtype=torch.float64, generator=seeded()), torch.tensor([0, 1, 1])
    weight, bias = np.array([3.0, -4.0]), 0.5
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[0.0, 0.0], weight.tolist()]))
        model[1].bias.copy_(torch.tensor([0.0, bias]))
    objective = GaussianNoise(sigma=sigma, samples=20_000)
    draw = objective.draw(3, (1, 1, 2), seeded(1))
    logits = model(add_noise(x, draw, objective)).detach()
    losses = image_losses(logits, y).reshape(-1, 3).mean(dim=1)
    expected = expected_risk(weight, bias, x, y, sigma)
    standard_error = losses.std().item() / math.sqrt(len(losses))
    loss = objective(model, x, y, draw=draw).loss.item()
    assert loss == pytest.approx(losses.mean().item())
    assert abs(loss - expected) < 4 * standard_error
    assert abs(expected - ERM()(model, x, y).loss.item()) > 8 * standard_error


@pytest.mark.parametrize("samples", [1, 3])
def test_the_loss_is_the_cross_entropy_of_noisy_images_with_their_own_labels(samples):
    objective = GaussianNoise(sigma=0.4, samples=samples)
    model, (x, y) = plain_net(), exact_batch()
    draw = objective.draw(5, SIZE, seeded())
    noises = draw.noise.double().reshape(samples, *x.shape)
    expected = torch.stack([F.cross_entropy(model(x + 0.4 * noise), y) for noise in noises]).mean()
    out = objective(model, x, y, draw=draw)
    torch.testing.assert_close(out.loss, expected)
    torch.testing.assert_close(gradients(model, out.loss), gradients(model, expected))
    assert out.logits is None
    assert list(out.parts) == ["noisy"]


def test_no_noise_is_erm():
    x, y = batch()
    plain, noisy = conv_net(), conv_net()
    expected, loss = ERM()(plain, x, y).loss, GaussianNoise(sigma=0)(noisy, x, y).loss
    assert torch.equal(loss, expected)
    assert all(map(torch.equal, gradients(plain, expected), gradients(noisy, loss)))


# ------------------------------------------------------------------------------------------------- the noise


def test_noise_is_standard_normal_and_its_own_for_every_sample_image_channel_and_pixel():
    noise = GaussianNoise(samples=2).draw(5, SIZE, seeded()).noise
    assert (noise.shape, noise.dtype) == ((2, 5, *SIZE), torch.float32)
    assert noise.unique().numel() > 0.999 * noise.numel()
    assert stats.kstest(noise.flatten().numpy(), stats.norm.cdf).pvalue > 0.05


def test_images_in_half_precision_take_the_noise_in_float32():
    model, (x, y) = conv_net(dtype=torch.bfloat16), batch(dtype=torch.bfloat16)
    calls = forwarded(model)
    draw = GaussianNoise(sigma=0.01).draw(7, SIZE, seeded())
    GaussianNoise(sigma=0.01)(model, x, y, draw=draw)
    assert torch.equal(calls[0], (x.float() + 0.01 * draw.noise).bfloat16())
    assert not torch.equal(calls[0], x + (0.01 * draw.noise).bfloat16())


@pytest.mark.parametrize("objective", [GaussianNoise(), RegGaussianNoise()])
def test_the_number_of_channels_is_needed(objective):
    with pytest.raises(ValueError, match=r"^image_size must be \(channels, height, width\), because .* got 8$"):
        objective.draw(4, 8)
    x, y = batch(4)
    with pytest.raises(ValueError, match=r"^draw.noise must have shape \(4, 3, 6, 8\) .* got shape \(4, 6, 8\)$"):
        objective(conv_net(), x, y, draw=objective.draw(4, (6, 8)))


# ----------------------------------------------------------------------------------------------- as a regulariser


@pytest.mark.parametrize(("eta", "passes"), [(0.1, "joint"), (3, "separate")])
def test_both_scales_follow_equation_3(eta, passes):
    model, (x, y) = plain_net(), exact_batch()
    draw = GaussianNoise(sigma=0.3, samples=2).draw(5, SIZE, seeded())
    clean = ERM()(model, x, y).loss
    noisy = GaussianNoise(sigma=0.3, samples=2)(model, x, y, draw=draw).loss
    fields = {"sigma": 0.3, "samples": 2, "eta": eta, "passes": passes}
    total = RegGaussianNoise(**fields, scale="sum")(model, x, y, draw=draw)
    mean = RegGaussianNoise(**fields)(model, x, y, draw=draw)
    torch.testing.assert_close(total.loss, clean + eta * noisy)
    torch.testing.assert_close(mean.loss, (clean + eta * noisy) / (1 + eta))
    torch.testing.assert_close(mean.logits, model(x))
    assert mean.parts.keys() == {"clean", "noisy"}
    torch.testing.assert_close(mean.parts["noisy"], noisy.detach())


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "draw", [Mixup().draw(4, SIZE), NoiseDraw(noise=torch.zeros(4, 1, 6, 8)), GaussianNoise(samples=2).draw(4, SIZE)]
)
def test_a_draw_without_noise_for_these_images_is_refused(draw):
    with pytest.raises(ValueError, match=r"draw\.noise must have shape \(4, 3, 6, 8\) for GaussianNoise.*, got "):
        GaussianNoise()(conv_net(), *batch(4), draw=draw)
