"""Spectral normalisation against singular value decompositions, and whole convolutions against their matrices."""

import pytest
import torch
from torch import nn

from regmixup.networks import build
from regmixup.networks.constraints import SpectralNorm, convolutions
from regmixup.networks.power_iteration import PowerIteration
from tests.networks.constrained import convolution, gradient, original, power, random_weight
from tests.references.constraints import convolution_matrix, slow_spectral_norm

each_shape = pytest.mark.parametrize("shape", [(16, 3, 3, 3), (4, 9, 1, 1), (1, 6, 3, 3), (6, 1, 1, 1)])
CASES = [
    ((3, 2, 3, 3), (7, 5), {"padding": 1, "stride": 2}),
    ((3, 2, 2, 3), (6, 7), {"stride": (1, 3), "padding": (0, 2)}),
    ((2, 3, 3, 3), (8, 7), {"dilation": 2, "padding": 2, "stride": 2}),
    ((4, 1, 3, 3), (6, 5), {"groups": 2, "padding": 1}),
    ((4, 2, 1, 1), (5, 4), {"groups": 2, "stride": 2}),
    ((3, 4, 1, 1), (5, 4), {"stride": 2}),
]
each_case = pytest.mark.parametrize(("shape", "size", "options"), CASES)
WHOLE = SpectralNorm(c=0.5, norm="convolution", warmup=1500)


def largest(matrix):
    return torch.linalg.svdvals(matrix.detach().flatten(1))[0].item()


@each_shape
def test_the_largest_singular_value_becomes_c(shape):
    conv = convolution(SpectralNorm(c=0.5, warmup=400), random_weight(*shape, sigma=3.0))
    assert power(conv)(original(conv)).sigma.item() == pytest.approx(3.0, rel=1e-9)
    assert largest(conv.weight) == pytest.approx(0.5, rel=1e-9)


def test_a_weight_within_the_bound_is_unchanged_to_the_bit():
    weight = random_weight(16, 3, 3, 3, sigma=0.095).float()
    assert torch.equal(convolution(SpectralNorm(c=0.1), weight).weight, weight)


@pytest.mark.parametrize("sigma", [0.4, 3.0])
@each_shape
def test_the_gradient_is_that_of_the_decomposition(shape, sigma):
    """Released code detached a weight within the bound, so that the layer could only decay."""
    weight = random_weight(*shape, sigma=sigma)
    conv = convolution(SpectralNorm(c=0.5, warmup=400), weight)
    twin, direction = nn.Parameter(weight.clone()), random_weight(*shape, seed=1)
    expected = gradient(lambda: slow_spectral_norm(twin, 0.5), twin, direction)
    torch.testing.assert_close(gradient(lambda: conv.weight, original(conv), direction), expected)


def test_a_zero_weight_stays_zero_and_can_leave_it():
    conv = convolution(SpectralNorm(c=0.5), torch.zeros(4, 2, 3, 3, dtype=torch.float64))
    assert torch.equal(conv.weight, torch.zeros_like(conv.weight))
    assert torch.equal(gradient(lambda: conv.weight, original(conv), 1.0), torch.ones(4, 2, 3, 3, dtype=torch.float64))
    original(conv).data = random_weight(4, 2, 3, 3, sigma=2.0)
    for _ in range(400):
        weight = conv.weight
    assert largest(weight) == pytest.approx(0.5, rel=1e-9)


# ---------------------------------------------------------------------------------------------- whole convolutions


@each_case
def test_the_norm_of_the_explicit_matrix_becomes_c(shape, size, options):
    conv = convolution(WHOLE, random_weight(*shape, sigma=2.0), size=size, **options)
    assert largest(convolution_matrix(conv, size)) == pytest.approx(0.5, rel=1e-6)


@each_case
def test_times_and_adjoint_are_the_explicit_matrix_and_its_transpose(shape, size, options):
    conv = nn.Conv2d(shape[1] * options.get("groups", 1), shape[0], shape[2:], bias=False, **options).double()
    conv.weight.data = random_weight(*shape)
    iteration = PowerIteration(conv, (1, conv.in_channels, *size), iterations=1, warmup=1)
    matrix = convolution_matrix(conv, size)
    u, v = torch.randn_like(iteration.u), torch.randn_like(iteration.v)
    torch.testing.assert_close(iteration.times(conv.weight, v).flatten(), matrix @ v.flatten())
    torch.testing.assert_close(iteration.adjoint(conv.weight, u).flatten(), matrix.T @ u.flatten())


def test_the_gradient_is_that_of_the_explicit_matrix():
    weight = random_weight(3, 2, 3, 3, sigma=2.0)
    conv = convolution(WHOLE, weight, size=(5, 6), padding=1, stride=2)
    twin = nn.Parameter(weight.clone())
    basis = torch.eye(60, dtype=torch.float64).reshape(60, 2, 5, 6)
    direction = random_weight(3, 2, 3, 3, seed=1)

    def slow():
        matrix = nn.functional.conv2d(basis, twin, padding=1, stride=2).flatten(1).T
        return twin * 0.5 / torch.linalg.matrix_norm(matrix, 2)

    expected = gradient(slow, twin, direction)
    torch.testing.assert_close(gradient(lambda: conv.weight, original(conv), direction), expected, rtol=1e-5, atol=1e-5)


def test_pointwise_convolutions_use_the_matrix():
    constraint = SpectralNorm(norm="convolution", warmup=1)
    with torch.device("meta"):
        model = build("resnet18", num_classes=10, constraint=constraint, image_size=(9, 12))
    assert model.backbone.training
    convs = convolutions(model)
    assert {(conv.kernel_size, power(conv).v.ndim) for conv in convs} == {((3, 3), 4), ((1, 1), 1)}
    assert power(convs[0]).v.shape == (1, 3, 9, 12)
    assert power(convs[-1]).u.shape == (1, 512, 2, 2)


@pytest.mark.parametrize("options", [{"padding": "same"}, {"padding": 1, "padding_mode": "circular"}])
def test_other_paddings_are_refused(options):
    conv = nn.Conv2d(3, 3, 3, **options)
    with pytest.raises(ValueError, match=r"^norm='convolution' needs convolutions padded with a number of zeros, got "):
        SpectralNorm(norm="convolution").apply(conv, torch.zeros(1, 3, 8, 8))
    SpectralNorm(norm="matrix").apply(conv, torch.zeros(1, 3, 8, 8))
