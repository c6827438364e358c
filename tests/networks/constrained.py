"""Small constrained convolutions for the tests of the constraints."""

import torch
from torch import nn


def convolution(constraint, weight, *, size=(7, 7), **options):
    """A convolution with the given weight under the constraint, in training mode, without bias."""
    outputs, inputs, *kernel = weight.shape
    inputs *= options.get("groups", 1)
    conv = nn.Conv2d(inputs, outputs, kernel, bias=False, dtype=weight.dtype, device=weight.device, **options)
    conv.weight.data = weight.clone()
    constraint.apply(conv, torch.zeros(1, inputs, *size))
    return conv


def original(conv):
    """The parameter behind the effective weight."""
    return conv.parametrizations.weight.original


def power(conv):
    """The power iteration that follows a convolution's weight."""
    return conv.parametrizations.weight[0].power


def random_weight(*shape, sigma=1.0, seed=0):
    """A float64 weight of the given shape whose matrix has the largest singular value `sigma`."""
    weight = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return sigma * weight / torch.linalg.matrix_norm(weight.flatten(1), 2)


def gradient(of, weight, direction):
    """The gradient of <direction, of()> in the parameter `weight`."""
    (grad,) = torch.autograd.grad((of() * direction).sum(), weight)
    return grad
