"""ResNet-18 and ResNet-50 with CIFAR stems (He et al., 2016): 3x3 stride-1 stem, no max-pool."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from regmixup.networks.batch_norm import BatchNorm2d, ReLU, stored_gradient
from regmixup.networks.contract import GlobalAverage
from regmixup.networks.layers import conv


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


def resnet18(*, in_channels: int, dropout: float) -> tuple[nn.Module, int]:
    """Basic blocks, 2 per stage: 512-d features."""
    return _resnet(in_channels, dropout, block=_basic, expansion=1, depths=(2, 2, 2, 2))


def resnet50(*, in_channels: int, dropout: float) -> tuple[nn.Module, int]:
    """Bottlenecks (stride in the 3x3), 3-4-6-3 per stage: 2048-d features; 23,520,842 parameters for 10 classes."""
    return _resnet(in_channels, dropout, block=_bottleneck, expansion=4, depths=(3, 4, 6, 3))


def _resnet(in_channels: int, dropout: float, *, block, expansion: int, depths: tuple[int, ...]):  # type: ignore[no-untyped-def]
    layers: list[nn.Module] = [conv(in_channels, 64, 3), BatchNorm2d(64), ReLU()]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for index in range(depth):
            layers.append(block(channels, width, 2 if stage > 0 and index == 0 else 1))
            channels = expansion * width
    return nn.Sequential(*layers, GlobalAverage(), nn.Dropout(dropout)), channels
