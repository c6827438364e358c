"""How convolutions start, in the networks that start them with He's normal distribution."""

import math

import pytest
import torch
from torch import nn

from regmixup.networks.backbones import pyramidnet, wide_resnet, wrn28_10_sngp

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
        assert abs(weight.mean().item()) < 5 * expected / math.sqrt(number)
        kurtosis = (weight**4).mean().item() / weight.var().item() ** 2
        assert kurtosis == pytest.approx(3, abs=5 * math.sqrt(24 / number)), "3 for a normal, 1.8 for a uniform"
        assert conv.bias is None
