"""Stable rank normalisation against singular value decompositions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regmixup.networks.constraints import StableRank
from tests.networks.constrained import convolution, gradient, original, random_weight
from tests.references.constraints import slow_stable_rank, stable_rank


@pytest.mark.parametrize("shape", [(32, 4, 3, 3), (4, 9, 1, 1)])
@pytest.mark.parametrize("ratio", [0.3, 0.9])
def test_the_stable_rank_is_the_smaller_of_its_own_and_the_target(shape, ratio):
    weight = random_weight(*shape, sigma=3.0)
    conv = convolution(StableRank(ratio=ratio, warmup=400), weight)
    assert torch.linalg.matrix_norm(conv.weight.flatten(1), 2).item() == pytest.approx(1, rel=1e-9)
    target = ratio * min(weight.flatten(1).shape)
    assert stable_rank(conv.weight) == pytest.approx(min(stable_rank(weight), target), rel=1e-9)


def test_a_layer_below_the_target_is_only_divided_by_sigma():
    """Singular values 2 and 0.5, stable rank 1.0625, below 0.9 * 2: not a bit more than W / 2 happens."""
    weight = torch.diag(torch.tensor([2.0, 0.5])).reshape(2, 2, 1, 1)
    conv = convolution(StableRank(ratio=0.9, warmup=50), weight)
    assert torch.equal(conv.weight, weight / 2)


@pytest.mark.parametrize(("ratio", "dtype"), [(0.01, torch.float32), (0.3, torch.float64), (1.0, torch.float32)])
def test_kernels_of_rank_one_are_normalised_without_nan(ratio, dtype):
    """D = 0 here, and R = 1 too for ratio = 0.01. Twice differentiable, as penalties on gradients need it."""
    weight = (random_weight(5, 1, 1, 1) * random_weight(1, 2, 3, 3)).to(dtype)
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
