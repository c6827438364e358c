"""Backbones with CIFAR stems: images (N, C, H, W) -> features (N, D).

`small` for 8x8 images; ResNet-18 and ResNet-50 (He et al., 2016); WRN-28-10 (Zagoruyko and Komodakis, 2016), also with
the blocks of SNGP's reference; DenseNet-121 (Huang et al., 2017); PyramidNet-200 (Han et al., 2017). Each function
returns the module and D.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.networks.layers import BatchNorm2d, Dropout, GlobalAverage, ReLU, conv, he_conv, stored_gradient


def small(*, in_channels: int, dropout: float = 0.0) -> tuple[nn.Module, int]:
    """Build three 3x3 convolutions (16, 32, 64 channels; the second halves the image): 64-d features."""

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    layers = [*block(in_channels, 16, 1), *block(16, 32, 2), nn.Dropout(dropout), *block(32, 64, 1)]
    return nn.Sequential(*layers, GlobalAverage()), 64


class _Residual(nn.Module):
    """relu(branch(x) + shortcut(x)); the shortcut is a 1x1 projection with batch norm where shapes differ."""

    def __init__(self, branch: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(stored_gradient(self.branch(x) + self.shortcut(x)))


def _basic(inputs: int, width: int, stride: int) -> _Residual:
    branch = nn.Sequential(
        conv(inputs, width, 3, stride), BatchNorm2d(width), ReLU(),
        conv(width, width, 3), BatchNorm2d(width),
    )  # fmt: skip
    return _Residual(branch, inputs, width, stride)


def _bottleneck(inputs: int, width: int, stride: int) -> _Residual:
    outputs = 4 * width
    branch = nn.Sequential(
        conv(inputs, width, 1), BatchNorm2d(width), ReLU(),
        conv(width, width, 3, stride), BatchNorm2d(width), ReLU(),
        conv(width, outputs, 1), BatchNorm2d(outputs),
    )  # fmt: skip
    return _Residual(branch, inputs, outputs, stride)


def resnet18(*, in_channels: int, dropout: float = 0.0) -> tuple[nn.Module, int]:
    """Build basic blocks, 2 per stage: 512-d features."""
    return _resnet(in_channels, dropout, block=_basic, expansion=1, depths=(2, 2, 2, 2))


def resnet50(*, in_channels: int, dropout: float = 0.0) -> tuple[nn.Module, int]:
    """Build bottlenecks (stride in the 3x3), 3-4-6-3 per stage: 2048-d features; 23,520,842 parameters, 10 classes."""
    return _resnet(in_channels, dropout, block=_bottleneck, expansion=4, depths=(3, 4, 6, 3))


def _resnet(
    in_channels: int, dropout: float, *, block: Callable[..., nn.Module], expansion: int, depths: tuple[int, ...]
) -> tuple[nn.Module, int]:
    layers: list[nn.Module] = [conv(in_channels, 64, 3), BatchNorm2d(64), ReLU()]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for index in range(depth):
            layers.append(block(channels, width, 2 if stage > 0 and index == 0 else 1))
            channels = expansion * width
    return nn.Sequential(*layers, GlobalAverage(), nn.Dropout(dropout)), channels


def _activation(channels: int) -> tuple[nn.Module, nn.Module]:
    """Return the two layers of BN-ReLU."""
    return BatchNorm2d(channels), ReLU(inplace=True)


class PreActivationBlock(nn.Module):
    """BN-ReLU-conv-BN-ReLU-dropout-conv; where channels change, the 1x1 projection takes the BN-ReLU'd input."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.activate = nn.Sequential(*_activation(inputs))
        self.branch = nn.Sequential(
            he_conv(inputs, outputs, 3, stride), *_activation(outputs), Dropout(dropout), he_conv(outputs, outputs, 3)
        )
        self.projection = he_conv(inputs, outputs, 1, stride) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        active = self.activate(x)
        if self.projection is None:
            return self.branch(active) + x
        active = stored_gradient(active)
        return self.branch(active) + self.projection(active)


class ChannelDropoutBlock(nn.Module):
    """The block of SNGP's reference (Liu et al., 2020): dropout takes whole channels, the projection the raw input.

    BN-ReLU-dropout-conv-BN-ReLU-dropout-conv; where channels change, once more dropout, and a 1x1 projection.
    Weights are initialised by their input channels.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *_activation(inputs), nn.Dropout2d(dropout), he_conv(inputs, outputs, 3, stride, fan="in"),
            *_activation(outputs), nn.Dropout2d(dropout), he_conv(outputs, outputs, 3, fan="in"),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.branch.append(nn.Dropout2d(dropout))
            self.shortcut = he_conv(inputs, outputs, 1, stride, fan="in")

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) + self.shortcut(x)


def wrn28_10(*, in_channels: int, dropout: float = 0.1) -> tuple[nn.Sequential, int]:
    """Build 28 layers of width 10: 3 groups of 4 blocks with 160, 320, 640 channels; 36,479,194 parameters."""
    return wide_resnet(depth=28, width=10, in_channels=in_channels, dropout=dropout)


def wrn28_10_sngp(*, in_channels: int, dropout: float = 0.1) -> tuple[nn.Sequential, int]:
    """Build WRN-28-10 from SNGP's blocks, with channels dropped after the stem too; the same widths and parameters."""
    backbone, dim = wide_resnet(depth=28, width=10, in_channels=in_channels, dropout=dropout, block=ChannelDropoutBlock)
    backbone[0] = he_conv(in_channels, 16, 3, fan="in")
    return backbone.insert(1, nn.Dropout2d(dropout)), dim


def wide_resnet(
    *, depth: int, width: int, in_channels: int, dropout: float, block: Callable[..., nn.Module] = PreActivationBlock
) -> tuple[nn.Sequential, int]:
    """Build a WRN of depth 6n + 4."""
    assert (depth - 4) % 6 == 0
    layers: list[nn.Module] = [he_conv(in_channels, 16, 3)]
    channels = 16
    for group in range(3):
        for index in range((depth - 4) // 6):
            stride = 2 if group > 0 and index == 0 else 1
            layers.append(block(channels, 16 * 2**group * width, stride, dropout))
            channels = 16 * 2**group * width
    return nn.Sequential(*layers, *_activation(channels), GlobalAverage()), channels


class DenseLayer(nn.Module):
    """[x, branch(x)] along the channels; the branch BN-ReLU-1x1-BN-ReLU-3x3 makes `growth` new ones."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        bottleneck = 4 * growth
        self.branch = nn.Sequential(
            *_activation(inputs), conv(inputs, bottleneck, 1),
            *_activation(bottleneck), conv(bottleneck, growth, 3),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.branch(x)], dim=1)


def densenet121(*, in_channels: int, dropout: float = 0.0) -> tuple[nn.Sequential, int]:
    """Build blocks of 6, 12, 24 and 16 layers, growth 32: 1024-d features; 6,956,298 parameters for 10 classes.

    The stem is a 3x3 convolution with stride 1, without batch norm or pooling after it.
    """
    growth, depths = 32, (6, 12, 24, 16)
    channels = 2 * growth
    layers: list[nn.Module] = [conv(in_channels, channels, 3)]
    for block, depth in enumerate(depths):
        if block > 0:  # halve the channels and the image, rounded up so that a small image never vanishes
            layers += [*_activation(channels), conv(channels, channels // 2, 1), nn.AvgPool2d(2, ceil_mode=True)]
            channels //= 2
        layers += [DenseLayer(channels + index * growth, growth) for index in range(depth)]
        channels += depth * growth
    return nn.Sequential(*layers, *_activation(channels), GlobalAverage(), nn.Dropout(dropout)), channels


class PyramidBlock(nn.Module):
    """BN-1x1-BN-ReLU-3x3-BN-ReLU-1x1-BN plus the input, which gets zeros for the new channels.

    There is no ReLU before the first convolution and none after the sum. Where the stride is 2, the shortcut is a 2x2
    mean, rounded up as the strided convolution rounds.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.branch = nn.Sequential(
            BatchNorm2d(inputs), he_conv(inputs, width, 1),
            *_activation(width), he_conv(width, width, 3, stride),
            *_activation(width), he_conv(width, outputs, 1),
            BatchNorm2d(outputs),
        )  # fmt: skip
        self.shrink = nn.AvgPool2d(2, ceil_mode=True) if stride == 2 else nn.Identity()
        self.new_channels = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) + F.pad(self.shrink(x), (0, 0, 0, 0, 0, self.new_channels))


def pyramidnet200(*, in_channels: int, dropout: float = 0.0) -> tuple[nn.Sequential, int]:
    """Build 200 layers, widening 240: 3 stages of 22 blocks; 1024-d features; 26,752,702 parameters for 10 classes."""
    return pyramidnet(depth=200, widening=240, in_channels=in_channels, dropout=dropout)


def pyramidnet(*, depth: int, widening: int, in_channels: int, dropout: float) -> tuple[nn.Sequential, int]:
    """Build a PyramidNet of depth 9n + 2: 3 stages of n blocks; block k of 3n is round(16 + k * widening / 3n) wide."""
    assert (depth - 2) % 9 == 0
    stage = (depth - 2) // 9
    channels = 16
    layers: list[nn.Module] = [he_conv(in_channels, channels, 3), BatchNorm2d(channels)]
    for index in range(3 * stage):
        width = round(16 + (index + 1) * widening / (3 * stage))
        layers.append(PyramidBlock(channels, width, stride=2 if index in (stage, 2 * stage) else 1))
        channels = 4 * width
    return nn.Sequential(*layers, *_activation(channels), GlobalAverage(), nn.Dropout(dropout)), channels
