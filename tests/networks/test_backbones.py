"""Our backbones against torchvision's, or re-derived layer by layer with functional calls; and how they start."""

import math

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from regmixup.networks import build
from regmixup.networks.backbones import (
    ChannelDropoutBlock,
    PreActivationBlock,
    pyramidnet,
    wide_resnet,
    wrn28_10_sngp,
)
from tests.networks.weights import copy_in_order, randomise_batch_norm
from tests.references import pyramidnet as slow_pyramid


def images(channels, size=6):
    return torch.randn(3, channels, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


# ---------------------------------------------------------------------------------------------- ResNet and DenseNet


def torchvision_twin(name):
    """torchvision's network with a bare 3x3 stride-1 convolution for a stem."""
    model = torchvision.models.get_model(name, num_classes=10)
    stem = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    if name == "densenet121":
        model.features.conv0 = stem
        for layer in ("norm0", "relu0", "pool0"):
            setattr(model.features, layer, nn.Identity())
    else:
        model.conv1, model.maxpool = stem, nn.Identity()
    return model


@pytest.mark.parametrize(("name", "size"), [("resnet18", 9), ("resnet50", 9), ("densenet121", 16)])
def test_logits_equal_those_of_torchvision(name, size):
    """DenseNet at 16x16, which halves evenly: torchvision rounds odd sides down, we round them up."""
    torch.manual_seed(0)
    theirs = torchvision_twin(name).double()
    randomise_batch_norm(theirs)
    with torch.device("meta"):
        ours = build(name, num_classes=10).double()
    ours.to_empty(device="cpu")
    copy_in_order(theirs, ours)
    x = images(3, size)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.train()(x), theirs.train()(x), rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------------------------------ Wide ResNet


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


@each_block
def test_dropout_acts_where_the_functional_derivation_has_it(block):
    torch.manual_seed(1)
    module = block(4, 6, 1, 0.4).double()
    randomise_batch_norm(module)
    torch.manual_seed(2)
    expected = SLOW_BLOCKS[block](images(4), module.parameters(), 6, 1, 0.4)
    torch.manual_seed(2)
    torch.testing.assert_close(module(images(4)), expected)


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


def test_wrn28_10_sngp_drops_channels_at_its_28_places():
    """Once after the stem, twice in each of the 12 blocks and once more in the 3 with a projection."""
    with torch.device("meta"):
        model = build("wrn28-10-sngp", num_classes=10)
    assert sum(isinstance(module, nn.Dropout2d) for module in model.modules()) == 1 + 2 * 12 + 3
    assert not any(isinstance(module, nn.Dropout) for module in model.modules())
    assert isinstance(model.backbone[1], nn.Dropout2d)


# ------------------------------------------------------------------------------------------------------- PyramidNet


@pytest.mark.parametrize("size", [8, 9])
def test_features_of_a_pyramidnet_equal_those_of_the_slow_twin(size):
    torch.manual_seed(1)
    backbone, dim = pyramidnet(depth=20, widening=20, in_channels=3, dropout=0.0)
    randomise_batch_norm(backbone.double())
    x, parameters = images(3, size), backbone.parameters()
    with torch.no_grad():
        expected = slow_pyramid.features(x, parameters, stage=2, widening=20)
        assert next(parameters, None) is None
        torch.testing.assert_close(backbone(x), expected, rtol=1e-9, atol=1e-9)
    assert dim == 4 * (16 + 20)


# --------------------------------------------------------------------------------------------------- initial weights

MAKERS = {
    "wide": lambda: wide_resnet(depth=10, width=10, in_channels=3, dropout=0.0),
    "sngp": lambda: wrn28_10_sngp(in_channels=3, dropout=0.0),
    "pyramid": lambda: pyramidnet(depth=11, widening=240, in_channels=3, dropout=0.0),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_convolutions_start_normal_with_the_variance_of_their_fan(kind):
    """std = sqrt(2 / (k * k * channels)), of outputs, or of inputs for SNGP.

    The sample std of n normal values is within 5 / sqrt(2 n) of it.
    """
    torch.manual_seed(0)
    backbone, _ = MAKERS[kind]()
    convolutions = [module for module in backbone.modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == (1 + 3 * 8 + 3 if kind == "sngp" else 1 + 3 * 3)
    for conv in convolutions:
        weight = conv.weight.detach()
        outputs, inputs, height, width = weight.shape
        channels = inputs if kind == "sngp" else outputs
        expected, number = math.sqrt(2 / (height * width * channels)), weight.numel()
        assert weight.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * number))
        kurtosis = (weight**4).mean().item() / weight.var().item() ** 2
        assert kurtosis == pytest.approx(3, abs=5 * math.sqrt(24 / number)), "3 for a normal, 1.8 for a uniform"
        assert conv.bias is None
