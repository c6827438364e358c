"""Stable rank normalisation against singular value decompositions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regmixup.networks.constraints import StableRank
from tests.networks.constrained import convolution, gradient, original, random_weight
from tests.references.constraints import slow_stable_rank, stable_rank

SHAPES = [(32, 4, 3, 3), (4, 9, 1, 1), (5, 2, 3, 2)]
each_shape = pytest.mark.parametrize("shape", SHAPES)
TINY = [(1, 6, 3, 3), (2, 5, 1, 1), (3, 4, 1, 1)]


def values(weight):
    return torch.linalg.svdvals(weight.detach().flatten(1))


def rank_one(*shape):
    left, right = random_weight(shape[0], 1, 1, 1).flatten(), random_weight(1, *shape[1:])
    return left.reshape(-1, 1, 1, 1) * right


@each_shape
@pytest.mark.parametrize("ratio", [0.3, 0.9])
def test_the_stable_rank_is_the_smaller_of_its_own_and_the_target(shape, ratio):
    weight = random_weight(*shape, sigma=3.0)
    conv = convolution(StableRank(ratio=ratio, warmup=400), weight)
    assert values(conv.weight)[0].item() == pytest.approx(1, rel=1e-9)
    target = ratio * min(weight.flatten(1).shape)
    assert stable_rank(conv.weight) == pytest.approx(min(stable_rank(weight), target), rel=1e-9)


def test_hand_example():
    """Singular values 4, 2, 2, 2, 2 over 5 rows: 1 + 4 / 4 = 2 > 0.3 * 5 = 1.5, so 1/2 shrinks to sqrt(0.5 / 4)."""
    weight = torch.diag(torch.tensor([4.0, 2, 2, 2, 2], dtype=torch.float64)).reshape(5, 5, 1, 1)
    conv = convolution(StableRank(ratio=0.3), weight)
    expected = torch.tensor([1, *[0.125**0.5] * 4], dtype=torch.float64).diag()
    torch.testing.assert_close(conv.weight.flatten(1), expected)


def test_a_layer_below_the_target_is_only_divided_by_sigma():
    """Singular values 2 and 0.5, stable rank 1.0625, below 0.9 * 2: not a bit more than W / 2 happens."""
    weight = torch.diag(torch.tensor([2.0, 0.5])).reshape(2, 2, 1, 1)
    conv = convolution(StableRank(ratio=0.9, warmup=50), weight)
    assert torch.equal(conv.weight, weight / 2)


@each_shape
def test_a_ratio_of_one_is_the_weight_over_sigma(shape):
    weight = random_weight(*shape, sigma=0.2)
    conv = convolution(StableRank(ratio=1, warmup=400), weight)
    torch.testing.assert_close(conv.weight, 5 * weight)


@pytest.mark.parametrize("shape", TINY)
def test_tiny_layers_have_a_target_of_at_least_one(shape):
    """0.3 of 1, 2 or 3 rows is less than 1, which no stable rank is: the top singular pair is all that remains."""
    weight = random_weight(*shape, sigma=3.0)
    conv = convolution(StableRank(ratio=0.3, warmup=400), weight)
    left, _, right = torch.linalg.svd(weight.flatten(1), full_matrices=False)
    torch.testing.assert_close(conv.weight.flatten(1), torch.outer(left[:, 0], right[0]))
    assert torch.isfinite(gradient(lambda: conv.weight, original(conv), 1.0)).all()


@pytest.mark.parametrize("shape", [(1, 6, 3, 3), (6, 1, 1, 1)])
def test_a_layer_of_rank_one_by_its_shape_keeps_its_gradient(shape):
    weight, direction = random_weight(*shape, sigma=3.0), random_weight(*shape, seed=1)
    conv = convolution(StableRank(ratio=0.3), weight)
    twin = nn.Parameter(weight.clone())
    expected = gradient(lambda: twin / twin.norm(), twin, direction)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(gradient(lambda: conv.weight, original(conv), direction), expected)


@pytest.mark.parametrize(("ratio", "dtype"), [(0.01, torch.float32), (0.3, torch.float64), (1.0, torch.float32)])
def test_kernels_of_rank_one_are_normalised_without_nan(ratio, dtype):
    """f = 0 here, and t = 0 too for ratio = 0.01. Twice differentiable, as penalties on gradients need it."""
    weight = rank_one(5, 2, 3, 3).to(dtype)
    conv = convolution(StableRank(ratio=ratio), 2 * weight)
    torch.testing.assert_close(conv.weight, weight)
    (first,) = torch.autograd.grad(conv.weight.pow(3).sum(), original(conv), create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), original(conv))
    assert torch.isfinite(first).all()
    assert torch.isfinite(second).all()


@given(
    outputs=st.integers(1, 6),
    inputs=st.integers(1, 4),
    kernel=st.sampled_from([(1, 1), (2, 3), (3, 3)]),
    ratio=st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0]),
    gap=st.sampled_from([0.1, 0.5, 0.8]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=30, deadline=None)
def test_values_and_gradients_are_those_of_the_slow_algorithm(outputs, inputs, kernel, ratio, gap, seed):
    """Singular values 2 and then at most `gap` of it, so that 400 iterations converge."""
    left, spectrum, right = torch.linalg.svd(
        random_weight(outputs, inputs, *kernel, seed=seed).flatten(1), full_matrices=False
    )
    spectrum = torch.cat([spectrum[:1] * 2, spectrum[1:] * gap])
    weight = (left * spectrum @ right).reshape(outputs, inputs, *kernel)
    conv = convolution(StableRank(ratio=ratio, warmup=400), weight)
    twin, direction = nn.Parameter(weight.clone()), random_weight(*weight.shape, seed=seed + 1)
    torch.testing.assert_close(conv.weight, slow_stable_rank(twin, ratio))
    expected = gradient(lambda: slow_stable_rank(twin, ratio), twin, direction)
    torch.testing.assert_close(gradient(lambda: conv.weight, original(conv), direction), expected)


@pytest.mark.parametrize("ratio", [0, 1.01])
def test_ratio_must_lie_in_the_unit_interval(ratio):
    with pytest.raises(ValueError, match=rf"^ratio must be a finite number > 0 and <= 1, got {ratio!r}$"):
        StableRank(ratio=ratio)
