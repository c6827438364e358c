"""The wide residual network, re-derived layer by layer with functional calls, and its initialisation."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regmixup.networks import build
from regmixup.networks.wide_resnet import PreActivationBlock, wide_resnet


def batch_norm_relu(x, weight, bias):
    """Training mode: every channel is standardised by its own mean and (biased) variance over the batch."""
    mean = x.mean(dim=(0, 2, 3), keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True)
    standard = (x - mean) / torch.sqrt(variance + 1e-5)
    return torch.clamp(weight.reshape(1, -1, 1, 1) * standard + bias.reshape(1, -1, 1, 1), min=0)


def slow_block(x, parameters, outputs, stride, dropout=0.0):
    """BN-ReLU-conv-BN-ReLU-dropout-conv plus x, or plus a 1x1 convolution of the BN-ReLU'd x where channels change."""
    active = batch_norm_relu(x, next(parameters), next(parameters))
    hidden = F.conv2d(active, next(parameters), stride=stride, padding=1)
    hidden = batch_norm_relu(hidden, next(parameters), next(parameters))
    hidden = F.dropout(hidden, dropout, training=True)
    hidden = F.conv2d(hidden, next(parameters), padding=1)
    return hidden + (x if x.shape[1] == outputs else F.conv2d(active, next(parameters), stride=stride))


def randomise_batch_norm(model):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.3)


def images(channels, size=6):
    return torch.randn(3, channels, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (4, 6, 1), (4, 6, 2)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_block_equals_its_functional_derivation(inputs, outputs, stride, dropout):
    torch.manual_seed(1)
    block = PreActivationBlock(inputs, outputs, stride, dropout).double()
    randomise_batch_norm(block)
    x = images(inputs)
    torch.manual_seed(2)
    expected = slow_block(x, block.parameters(), outputs, stride, dropout)
    torch.manual_seed(2)
    torch.testing.assert_close(block(x.clone()), expected)


def test_a_whole_network_equals_its_functional_derivation():
    """WRN-16-2: 2 blocks a group, widths 32, 64, 128, strides 1, 2, 2, final BN-ReLU and mean over positions."""
    torch.manual_seed(1)
    backbone, dim = wide_resnet(depth=16, width=2, in_channels=3, dropout=0.0)
    randomise_batch_norm(backbone.double())
    x = images(3, size=9)
    parameters = backbone.parameters()
    maps = F.conv2d(x, next(parameters), padding=1)
    for outputs, stride in [(32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1)]:
        maps = slow_block(maps, parameters, outputs, stride)
    expected = batch_norm_relu(maps, next(parameters), next(parameters)).mean(dim=(2, 3))
    assert list(parameters) == []
    assert dim == 128
    torch.testing.assert_close(backbone(x), expected)


def test_a_block_leaves_its_input_alone():
    """The activations work in place, but never on the tensor the shortcut still needs."""
    x = images(4)
    before = x.clone()
    PreActivationBlock(4, 4, 1, 0.0).double()(x)
    assert torch.equal(x, before)


def test_wrn28_10_has_twelve_blocks_of_the_documented_widths_and_strides():
    with torch.device("meta"):
        model = build("wrn28-10", num_classes=10)
        blocks = [module for module in model.modules() if isinstance(module, PreActivationBlock)]
        maps = model.backbone[:-3](torch.zeros(1, 3, 32, 32))
    assert [block.branch[-1].out_channels for block in blocks] == [160] * 4 + [320] * 4 + [640] * 4
    assert [block.branch[0].stride[0] for block in blocks] == [1, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1]
    assert maps.shape == (1, 640, 8, 8)
    assert sum(isinstance(module, nn.Dropout) for module in model.modules()) == 12


def test_convolutions_start_normal_with_the_variance_of_fan_out():
    """std = sqrt(2 / (k * k * outputs)); the sample std of n normal values is within 5 / sqrt(2 n) of it."""
    torch.manual_seed(0)
    backbone, _ = wide_resnet(depth=10, width=10, in_channels=3, dropout=0.0)
    convolutions = [module for module in backbone.modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 1 + 3 * 3
    for conv in convolutions:
        weight = conv.weight.detach()
        outputs, _, height, width = weight.shape
        expected, number = math.sqrt(2 / (height * width * outputs)), weight.numel()
        assert weight.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * number))
        assert abs(weight.mean().item()) < 5 * expected / math.sqrt(number)
        kurtosis = (weight**4).mean().item() / weight.var().item() ** 2
        assert kurtosis == pytest.approx(3, abs=5 * math.sqrt(24 / number)), "3 for a normal, 1.8 for a uniform"
        assert conv.bias is None


def test_batch_norm_starts_at_the_identity():
    backbone, _ = wide_resnet(depth=10, width=1, in_channels=3, dropout=0.0)
    norms = [module for module in backbone.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 2 * 3 + 1
    assert all(bool((norm.weight == 1).all()) and bool((norm.bias == 0).all()) for norm in norms)
