"""The wide residual network, re-derived layer by layer with functional calls, and its initialisation."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regmixup.networks import build
from regmixup.networks.backbones import ChannelDropoutBlock, PreActivationBlock, wide_resnet
from tests.networks.weights import randomise_batch_norm


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


def slow_channel_dropout_block(x, parameters, outputs, stride, dropout=0.0):
    """As in SNGP's reference: channels dropped after both ReLUs and, where there is a projection, before the sum."""
    hidden = batch_norm_relu(x, next(parameters), next(parameters))
    hidden = F.conv2d(drop_channels(hidden, dropout), next(parameters), stride=stride, padding=1)
    hidden = batch_norm_relu(hidden, next(parameters), next(parameters))
    hidden = F.conv2d(drop_channels(hidden, dropout), next(parameters), padding=1)
    if x.shape[1] == outputs:
        return x + hidden
    return F.conv2d(x, next(parameters), stride=stride) + drop_channels(hidden, dropout)


def drop_channels(x, rate):
    """One coin per image and channel; what is kept grows by 1 / (1 - rate)."""
    return x * torch.empty(*x.shape[:2], 1, 1, dtype=x.dtype).bernoulli_(1 - rate) / (1 - rate)


SLOW_BLOCKS = {PreActivationBlock: slow_block, ChannelDropoutBlock: slow_channel_dropout_block}
each_block = pytest.mark.parametrize("block", SLOW_BLOCKS)


def images(channels, size=6):
    return torch.randn(3, channels, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@each_block
@pytest.mark.parametrize(("inputs", "outputs", "stride", "dropout"), [(4, 4, 1, 0.0), (4, 6, 1, 0.4), (4, 6, 2, 0.0)])
def test_a_block_equals_its_functional_derivation(block, inputs, outputs, stride, dropout):
    torch.manual_seed(1)
    module = block(inputs, outputs, stride, dropout).double()
    randomise_batch_norm(module)
    x = images(inputs)
    torch.manual_seed(2)
    expected = SLOW_BLOCKS[block](x, module.parameters(), outputs, stride, dropout)
    torch.manual_seed(2)
    torch.testing.assert_close(module(x.clone()), expected)


@each_block
def test_a_whole_network_equals_its_functional_derivation(block):
    """WRN-16-2: 2 blocks a group, widths 32, 64, 128, strides 1, 2, 2, final BN-ReLU and mean over positions."""
    torch.manual_seed(1)
    backbone, dim = wide_resnet(depth=16, width=2, in_channels=3, dropout=0.0, block=block)
    randomise_batch_norm(backbone.double())
    x = images(3, size=9)
    parameters = backbone.parameters()
    maps = F.conv2d(x, next(parameters), padding=1)
    for outputs, stride in [(32, 1), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1)]:
        maps = SLOW_BLOCKS[block](maps, parameters, outputs, stride)
    expected = batch_norm_relu(maps, next(parameters), next(parameters)).mean(dim=(2, 3))
    assert list(parameters) == []
    assert dim == 128
    torch.testing.assert_close(backbone(x), expected)


def test_wrn28_10_has_twelve_blocks_of_the_documented_widths_and_strides():
    with torch.device("meta"):
        model = build("wrn28-10", num_classes=10)
        blocks = [module for module in model.modules() if isinstance(module, PreActivationBlock)]
        maps = model.backbone[:-3](torch.zeros(1, 3, 32, 32))
    assert [block.branch[-1].out_channels for block in blocks] == [160] * 4 + [320] * 4 + [640] * 4
    assert [block.branch[0].stride[0] for block in blocks] == [1, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1]
    assert maps.shape == (1, 640, 8, 8)
    assert sum(isinstance(module, nn.Dropout) for module in model.modules()) == 12


def test_wrn28_10_sngp_drops_channels_at_its_28_places():
    """Once after the stem, twice in each of the 12 blocks and once more in the 3 with a projection."""
    with torch.device("meta"):
        plain, sngp = build("wrn28-10", num_classes=10), build("wrn28-10-sngp", num_classes=10)
    assert sum(isinstance(module, nn.Dropout2d) for module in sngp.modules()) == 1 + 2 * 12 + 3
    assert not any(isinstance(module, nn.Dropout) for module in sngp.modules())
    assert isinstance(sngp.backbone[0], nn.Conv2d)
    assert isinstance(sngp.backbone[1], nn.Dropout2d)
    assert [p.shape for p in sngp.parameters()] == [p.shape for p in plain.parameters()]
