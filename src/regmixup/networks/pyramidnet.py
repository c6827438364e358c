"""PyramidNet-200 with bottlenecks (Han et al., 2017): every block is a little wider than the one before."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.networks.batch_norm import BatchNorm2d, ReLU
from regmixup.networks.contract import GlobalAverage
from regmixup.networks.layers import he_conv


class PyramidBlock(nn.Module):
    """BN-1x1-BN-ReLU-3x3-BN-ReLU-1x1-BN plus the input, which gets zeros for the new channels.

    There is no ReLU before the first convolution and none after the sum. Where the stride is 2, the shortcut is a 2x2
    mean, rounded up as the strided convolution does it.
    """

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.branch = nn.Sequential(
            BatchNorm2d(inputs), he_conv(inputs, width, 1),
            BatchNorm2d(width), ReLU(inplace=True), he_conv(width, width, 3, stride),
            BatchNorm2d(width), ReLU(inplace=True), he_conv(width, outputs, 1),
            BatchNorm2d(outputs),
        )  # fmt: skip
        self.shrink = nn.AvgPool2d(2, ceil_mode=True) if stride == 2 else nn.Identity()
        self.new_channels = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) + F.pad(self.shrink(x), (0, 0, 0, 0, 0, self.new_channels))


def pyramidnet200(*, in_channels: int, dropout: float) -> tuple[nn.Sequential, int]:
    """200 layers, widening 240: 3 stages of 22 blocks; 1024-d features; 26,752,702 parameters for 10 classes."""
    return pyramidnet(depth=200, widening=240, in_channels=in_channels, dropout=dropout)


def pyramidnet(*, depth: int, widening: int, in_channels: int, dropout: float) -> tuple[nn.Sequential, int]:
    """A PyramidNet of depth 9n + 2: 3 stages of n blocks, where block k of 3n is round(16 + k * widening / 3n) wide."""
    assert (depth - 2) % 9 == 0
    stage = (depth - 2) // 9
    channels = 16
    layers: list[nn.Module] = [he_conv(in_channels, channels, 3), BatchNorm2d(channels)]
    for index in range(3 * stage):
        width = round(16 + (index + 1) * widening / (3 * stage))
        layers.append(PyramidBlock(channels, width, stride=2 if index in (stage, 2 * stage) else 1))
        channels = 4 * width
    layers += [BatchNorm2d(channels), ReLU(inplace=True), GlobalAverage(), nn.Dropout(dropout)]
    return nn.Sequential(*layers), channels
