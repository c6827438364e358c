"""Wide residual networks (Zagoruyko and Komodakis, 2016) as the paper uses them: WRN-28-10."""

from __future__ import annotations

from torch import Tensor, nn

from regmixup.networks.contract import GlobalAverage


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


class PreActivationBlock(nn.Module):
    """BN-ReLU-conv-BN-ReLU-dropout-conv; where channels change, the 1x1 projection takes the BN-ReLU'd input."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.branch = nn.Sequential(
            _conv(inputs, outputs, 3, stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            _conv(outputs, outputs, 3),
        )
        self.projection = _conv(inputs, outputs, 1, stride) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        active = self.activate(x)
        return self.branch(active) + (x if self.projection is None else self.projection(active))


def wrn28_10(*, in_channels: int, dropout: float) -> tuple[nn.Module, int]:
    """28 layers, width 10: 3 groups of 4 blocks with 160, 320, 640 channels; 640-d features; 36,479,194 parameters."""
    return wide_resnet(depth=28, width=10, in_channels=in_channels, dropout=dropout)


def wide_resnet(*, depth: int, width: int, in_channels: int, dropout: float) -> tuple[nn.Module, int]:
    """A WRN of depth 6n + 4."""
    assert (depth - 4) % 6 == 0
    layers: list[nn.Module] = [_conv(in_channels, 16, 3)]
    channels = 16
    for group in range(3):
        for index in range((depth - 4) // 6):
            stride = 2 if group > 0 and index == 0 else 1
            layers.append(PreActivationBlock(channels, 16 * 2**group * width, stride, dropout))
            channels = 16 * 2**group * width
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), GlobalAverage()), channels
