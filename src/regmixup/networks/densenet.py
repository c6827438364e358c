"""DenseNet-121 with a CIFAR stem (Huang et al., 2017): 3x3 stride-1 stem, no batch norm and no pooling after it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regmixup.networks.batch_norm import BatchNorm2d, ReLU
from regmixup.networks.contract import GlobalAverage
from regmixup.networks.layers import conv


class DenseLayer(nn.Module):
    """[x, branch(x)] along the channels; the branch BN-ReLU-1x1-BN-ReLU-3x3 makes `growth` new ones."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        bottleneck = 4 * growth
        self.branch = nn.Sequential(
            BatchNorm2d(inputs), ReLU(inplace=True), conv(inputs, bottleneck, 1),
            BatchNorm2d(bottleneck), ReLU(inplace=True), conv(bottleneck, growth, 3),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.branch(x)], dim=1)


def _transition(inputs: int) -> list[nn.Module]:
    """Half the channels and half the image, rounded up so that a small image never vanishes."""
    activate = [BatchNorm2d(inputs), ReLU(inplace=True)]
    return [*activate, conv(inputs, inputs // 2, 1), nn.AvgPool2d(2, ceil_mode=True)]


def densenet121(*, in_channels: int, dropout: float) -> tuple[nn.Sequential, int]:
    """Blocks of 6, 12, 24 and 16 layers, growth 32: 1024-d features; 6,956,298 parameters for 10 classes."""
    growth, depths = 32, (6, 12, 24, 16)
    channels = 2 * growth
    layers: list[nn.Module] = [conv(in_channels, channels, 3)]
    for block, depth in enumerate(depths):
        if block > 0:
            layers += _transition(channels)
            channels //= 2
        layers += [DenseLayer(channels + index * growth, growth) for index in range(depth)]
        channels += depth * growth
    layers += [BatchNorm2d(channels), ReLU(inplace=True), GlobalAverage(), nn.Dropout(dropout)]
    return nn.Sequential(*layers), channels
