"""Wide residual networks (Zagoruyko and Komodakis, 2016) as the paper uses them: WRN-28-10."""

from __future__ import annotations

from torch import Tensor, nn

from regmixup.networks.batch_norm import BatchNorm2d, ReLU, stored_gradient
from regmixup.networks.contract import GlobalAverage
from regmixup.networks.dropout import Dropout
from regmixup.networks.layers import he_conv


class PreActivationBlock(nn.Module):
    """BN-ReLU-conv-BN-ReLU-dropout-conv; where channels change, the 1x1 projection takes the BN-ReLU'd input."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.activate = nn.Sequential(BatchNorm2d(inputs), ReLU(inplace=True))
        self.branch = nn.Sequential(
            he_conv(inputs, outputs, 3, stride),
            BatchNorm2d(outputs),
            ReLU(inplace=True),
            Dropout(dropout),
            he_conv(outputs, outputs, 3),
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
            BatchNorm2d(inputs), ReLU(inplace=True), nn.Dropout2d(dropout),
            he_conv(inputs, outputs, 3, stride, fan="in"),
            BatchNorm2d(outputs), ReLU(inplace=True), nn.Dropout2d(dropout),
            he_conv(outputs, outputs, 3, fan="in"),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.branch.append(nn.Dropout2d(dropout))
            self.shortcut = he_conv(inputs, outputs, 1, stride, fan="in")

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) + self.shortcut(x)


def wrn28_10(*, in_channels: int, dropout: float) -> tuple[nn.Sequential, int]:
    """28 layers, width 10: 3 groups of 4 blocks with 160, 320, 640 channels; 640-d features; 36,479,194 parameters."""
    return wide_resnet(depth=28, width=10, in_channels=in_channels, dropout=dropout)


def wrn28_10_sngp(*, in_channels: int, dropout: float) -> tuple[nn.Sequential, int]:
    """WRN-28-10 of SNGP's blocks, with channels dropped after the stem too; the same widths and parameters."""
    block = ChannelDropoutBlock
    backbone, dim = wide_resnet(depth=28, width=10, in_channels=in_channels, dropout=dropout, block=block)
    backbone[0] = he_conv(in_channels, 16, 3, fan="in")
    return backbone.insert(1, nn.Dropout2d(dropout)), dim


def wide_resnet(
    *,
    depth: int,
    width: int,
    in_channels: int,
    dropout: float,
    block: type[PreActivationBlock] | type[ChannelDropoutBlock] = PreActivationBlock,
) -> tuple[nn.Sequential, int]:
    """A WRN of depth 6n + 4."""
    assert (depth - 4) % 6 == 0
    layers: list[nn.Module] = [he_conv(in_channels, 16, 3)]
    channels = 16
    for group in range(3):
        for index in range((depth - 4) // 6):
            stride = 2 if group > 0 and index == 0 else 1
            layers.append(block(channels, 16 * 2**group * width, stride, dropout))
            channels = 16 * 2**group * width
    return nn.Sequential(*layers, BatchNorm2d(channels), ReLU(inplace=True), GlobalAverage()), channels
