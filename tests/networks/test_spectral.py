"""Spectral normalisation against singular value decompositions."""

import math

import pytest
import torch
from torch import nn

from regmixup.networks import build
from regmixup.networks.constraints import SpectralNorm
from tests.networks.constrained import convolution, gradient, original, power, random_weight
from tests.references.constraints import slow_spectral_norm

SHAPES = [(16, 3, 3, 3), (4, 9, 1, 1), (1, 6, 3, 3), (6, 1, 1, 1)]
each_shape = pytest.mark.parametrize("shape", SHAPES)


def largest(weight):
    return torch.linalg.svdvals(weight.detach().flatten(1))[0].item()


@each_shape
def test_the_largest_singular_value_becomes_c(shape):
    conv = convolution(SpectralNorm(c=0.5, warmup=400), random_weight(*shape, sigma=3.0))
    assert power(conv)(original(conv)).sigma.item() == pytest.approx(3.0, rel=1e-9)
    assert largest(conv.weight) == pytest.approx(0.5, rel=1e-9)


@each_shape
def test_one_iteration_per_forward_converges_too(shape):
    conv = convolution(SpectralNorm(c=0.75, warmup=1), random_weight(*shape, sigma=2.0))
    x = torch.zeros(1, conv.in_channels, 5, 5, dtype=torch.float64)
    for _ in range(400):
        conv(x)
    assert largest(conv.weight) == pytest.approx(0.75, rel=1e-9)


@pytest.mark.parametrize(("shape", "c"), [((16, 3, 3, 3), 0.1), ((4, 9, 1, 1), 0.7), ((1, 6, 3, 3), 1.0)])
def test_a_weight_within_the_bound_is_unchanged_to_the_bit(shape, c):
    weight = random_weight(*shape, sigma=0.95 * c).float()
    conv = convolution(SpectralNorm(c=c), weight)
    assert torch.equal(conv.weight, weight)


def test_a_weight_within_the_bound_still_receives_its_gradient():
    """Released code detached the weight there, so that the layer could only decay."""
    weight = random_weight(6, 3, 3, 3, sigma=0.4)
    conv, plain = convolution(SpectralNorm(c=0.5), weight), nn.Conv2d(3, 6, 3, bias=False, dtype=torch.float64)
    plain.weight.data = weight.clone()
    x = torch.randn(2, 3, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for layer in (conv, plain):
        layer(x).square().sum().backward()
    assert original(conv).grad.abs().max() > 0
    assert torch.equal(original(conv).grad, plain.weight.grad)


@pytest.mark.parametrize("sigma", [0.4, 3.0])
@each_shape
def test_the_gradient_is_that_of_the_decomposition(shape, sigma):
    weight = random_weight(*shape, sigma=sigma)
    conv = convolution(SpectralNorm(c=0.5, warmup=400), weight)
    twin, direction = nn.Parameter(weight.clone()), random_weight(*shape, seed=1)
    expected = gradient(lambda: slow_spectral_norm(twin, 0.5), twin, direction)
    torch.testing.assert_close(gradient(lambda: conv.weight, original(conv), direction), expected)


def test_steps_of_sgd_keep_the_bound():
    """One power iteration a step follows a weight that moves, up to 3 %: 15 iterations leave 2.5 % at the start."""
    torch.manual_seed(0)
    model = build("small", num_classes=10, constraint=SpectralNorm(c=0.5), image_size=8)
    convs = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.rand(8, 3, 8, 8), torch.arange(8)
    before = [original(conv).clone() for conv in convs]
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        assert all(largest(conv.weight) <= 0.5 * 1.03 for conv in convs)
    assert all((original(conv) - old).norm() > 0.1 * old.norm() for conv, old in zip(convs, before, strict=True))
    assert all(largest(original(conv)) > 0.5 for conv in convs), "the bound was never active"


def test_a_zero_weight_stays_zero_and_can_leave_it():
    conv = convolution(SpectralNorm(c=0.5), torch.zeros(4, 2, 3, 3, dtype=torch.float64))
    assert torch.equal(conv.weight, torch.zeros_like(conv.weight))
    assert torch.equal(gradient(lambda: conv.weight, original(conv), 1.0), torch.ones(4, 2, 3, 3, dtype=torch.float64))
    original(conv).data = random_weight(4, 2, 3, 3, sigma=2.0)
    for _ in range(400):
        weight = conv.weight
    assert largest(weight) == pytest.approx(0.5, rel=1e-9)


@pytest.mark.parametrize("c", [0, math.nan])
def test_c_must_be_positive(c):
    with pytest.raises(ValueError, match=rf"^c must be a finite number > 0, got {c!r}$"):
        SpectralNorm(c=c)
