"""The norm of whole convolutions against their explicitly written matrices."""

import pytest
import torch
from torch import nn

from regmixup.networks import build
from regmixup.networks.backbones import wide_resnet
from regmixup.networks.constraints import SpectralNorm, input_shapes
from tests.networks.constrained import convolution, gradient, original, power, random_weight
from tests.references.constraints import convolution_matrix

CASES = [
    ((3, 2, 3, 3), (6, 6), {"padding": 1}),
    ((3, 2, 3, 3), (6, 6), {"padding": 1, "stride": 2}),
    ((3, 2, 3, 3), (7, 5), {"padding": 1, "stride": 2}),
    ((3, 2, 3, 3), (5, 6), {}),
    ((3, 2, 2, 3), (6, 7), {"stride": (1, 3), "padding": (0, 2)}),
    ((2, 3, 3, 3), (8, 7), {"dilation": 2, "padding": 2, "stride": 2}),
    ((4, 1, 3, 3), (6, 5), {"groups": 2, "padding": 1}),
    ((4, 2, 1, 1), (5, 4), {"groups": 2, "stride": 2}),
    ((3, 4, 1, 1), (5, 4), {}),
    ((3, 4, 1, 1), (5, 4), {"stride": 2}),
]
each_case = pytest.mark.parametrize(("shape", "size", "options"), CASES)
WHOLE = SpectralNorm(c=0.5, norm="convolution", warmup=1500)


def explicit_norm(conv, size):
    return torch.linalg.svdvals(convolution_matrix(conv, size))[0].item()


@each_case
def test_sigma_is_the_largest_singular_value_of_the_explicit_matrix(shape, size, options):
    weight = random_weight(*shape, sigma=2.0)
    conv = convolution(WHOLE, weight, size=size, **options)
    plain = nn.Conv2d(conv.in_channels, conv.out_channels, shape[2:], bias=False, dtype=torch.float64, **options)
    plain.weight.data = weight
    assert power(conv)(original(conv)).sigma.item() == pytest.approx(explicit_norm(plain, size), rel=1e-6)
    assert explicit_norm(conv, size) == pytest.approx(0.5, rel=1e-6)


@each_case
def test_times_and_adjoint_are_the_explicit_matrix_and_its_transpose(shape, size, options):
    weight = random_weight(*shape)
    conv = nn.Conv2d(shape[1] * options.get("groups", 1), shape[0], shape[2:], bias=False, **options).double()
    conv.weight.data = weight
    iteration = ConvolutionPowerIteration(conv, (1, conv.in_channels, *size), iterations=1, warmup=1)
    matrix = convolution_matrix(conv, size)
    u, v = torch.randn_like(iteration.u), torch.randn_like(iteration.v)
    torch.testing.assert_close(iteration.times(weight, v).flatten(), matrix @ v.flatten())
    torch.testing.assert_close(iteration.adjoint(weight, u).flatten(), matrix.T @ u.flatten())


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


def test_every_layer_of_a_network_learns_the_size_of_its_own_input():
    backbone, _ = wide_resnet(depth=10, width=1, in_channels=3, dropout=0.0)
    shapes = input_shapes(backbone, torch.zeros(1, 3, 13, 10))
    assert [shape[2:] for shape in shapes.values()] == [(13, 10)] * 4 + [(7, 5), (13, 10)] + [(7, 5), (4, 3), (7, 5)]
    assert backbone.training


def test_pointwise_convolutions_use_the_matrix():
    constraint = SpectralNorm(norm="convolution", warmup=1)
    with torch.device("meta"):
        model = build("resnet18", num_classes=10, constraint=constraint, image_size=(9, 12))
    convs = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    kinds = {(conv.kernel_size, type(power(conv))) for conv in convs}
    assert kinds == {((3, 3), ConvolutionPowerIteration), ((1, 1), MatrixPowerIteration)}
    assert power(convs[0]).v.shape == (1, 3, 9, 12)
    assert power(convs[-1]).u.shape == (1, 512, 2, 2)


@pytest.mark.parametrize("options", [{"padding": "same"}, {"padding": 1, "padding_mode": "circular"}])
def test_other_paddings_are_refused(options):
    conv = nn.Conv2d(3, 3, 3, **options)
    with pytest.raises(ValueError, match=r"^norm='convolution' needs convolutions padded with a number of zeros, got "):
        SpectralNorm(norm="convolution").apply(conv, torch.zeros(1, 3, 8, 8))
    SpectralNorm(norm="matrix").apply(conv, torch.zeros(1, 3, 8, 8))
    assert conv(torch.zeros(1, 3, 8, 8)).shape == (1, 3, 8, 8)
