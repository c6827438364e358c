"""PyramidNet, against its slow twin, and the widths and shortcuts of PyramidNet-200."""

import pytest
import torch
from torch import nn

from regmixup.networks import build
from regmixup.networks.backbones import PyramidBlock, pyramidnet
from tests.networks.weights import randomise_batch_norm
from tests.references import pyramidnet as slow


def images(channels, size):
    return torch.randn(3, channels, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [8, 9])
def test_features_equal_those_of_the_slow_twin(size):
    torch.manual_seed(1)
    backbone, dim = pyramidnet(depth=20, widening=20, in_channels=3, dropout=0.0)
    randomise_batch_norm(backbone.double())
    x, parameters = images(3, size), backbone.parameters()
    with torch.no_grad():
        expected = slow.features(x, parameters, stage=2, widening=20)
        assert next(parameters, None) is None
        torch.testing.assert_close(backbone(x), expected, rtol=1e-9, atol=1e-9)
    assert dim == 4 * (16 + 20)


@pytest.mark.parametrize(("size", "stride"), [(6, 1), (6, 2), (5, 2)])
def test_the_shortcut_is_the_input_with_zeros_for_new_channels(size, stride):
    block = PyramidBlock(5, 3, stride).double()
    nn.init.zeros_(block.branch[-1].weight)
    x = images(5, size)
    assert torch.equal(block(x)[:, 5:], torch.zeros(3, 7, -(-size // stride), -(-size // stride)))
    torch.testing.assert_close(block(x), slow.shortcut(x, 12, stride))
    if stride == 1:
        assert torch.equal(block(x)[:, :5], x)


def test_pyramidnet200_has_66_blocks_of_the_documented_widths_and_strides():
    with torch.device("meta"):
        model = build("pyramidnet200", num_classes=10)
        blocks = [module for module in model.modules() if isinstance(module, PyramidBlock)]
        maps = model.backbone[:-2](torch.zeros(1, 3, 32, 32))
    assert [block.branch[1].out_channels for block in blocks] == [round(16 + k * 240 / 66) for k in range(1, 67)]
    assert [block.branch[4].stride[0] for block in blocks] == ([1] * 22 + [2] + [1] * 21 + [2] + [1] * 21)
    assert maps.shape == (1, 1024, 8, 8)
    assert sum(isinstance(module, nn.Conv2d) for module in model.modules()) + 1 == 200, "convolutions and the head"
