"""The cheap dropout mask of compiled steps: right share, no structure, another one for every seed."""

import pytest
import torch
from torch import nn

from regmixup import networks
from regmixup.networks.layers import Dropout, keeps


def seed(value):
    return torch.tensor([value], dtype=torch.int32)


def normal_values(mask, p):
    """The mask as numbers of mean 0 and variance 1, in memory order."""
    return ((mask.double() - (1 - p)) / (p * (1 - p)) ** 0.5).permute(0, 2, 3, 1).flatten()


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_each_element_stays_with_probability_1_minus_p(p):
    means = [float(normal_values(keeps(torch.zeros(32, 160, 8, 8), seed(s), p), p).mean()) for s in (0, 5, 9**9)]
    assert all(abs(mean) * (32 * 160 * 64) ** 0.5 < 4.5 for mean in means)


@pytest.mark.parametrize("lag", [1, 160, 2560])
def test_elements_are_uncorrelated(lag):
    for s in (1, 77, 123456789):
        z = normal_values(keeps(torch.zeros(32, 160, 8, 8), seed(s), 0.1), 0.1)
        assert abs(float((z[lag:] * z[:-lag]).mean())) * len(z) ** 0.5 < 4.5


def test_neighbouring_seeds_are_uncorrelated():
    a, b = (normal_values(keeps(torch.zeros(32, 160, 8, 8), seed(s), 0.1), 0.1) for s in (41, 42))
    assert abs(float((a * b).mean())) * len(a) ** 0.5 < 4.5


def test_outside_a_compiled_step_it_is_torchs_own_dropout():
    x = torch.randn(8, 4, 6, 6)
    torch.manual_seed(3)
    expected = nn.Dropout(0.3)(x)
    torch.manual_seed(3)
    assert torch.equal(Dropout(0.3)(x), expected)


def test_wide_resnets_use_it():
    with torch.device("meta"):
        model = networks.build("wrn28-10", num_classes=2)
    assert sum(isinstance(module, Dropout) for module in model.modules()) == 12


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a compiled step on CUDA is where it differs")
def test_compiled_on_cuda_the_mask_is_the_same_forward_and_backward():
    x = torch.ones(16, 64, 8, 8, device="cuda").contiguous(memory_format=torch.channels_last).requires_grad_()
    y = torch.compile(Dropout(0.25), fullgraph=True)(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # 0 where dropped, 4/3 where kept
    assert abs(float((y == 0).float().mean()) - 0.25) < 0.01
    assert torch.allclose(y[y != 0], torch.tensor(4 / 3, device="cuda"))
