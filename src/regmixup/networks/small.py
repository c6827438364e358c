"""A small convolutional network for images of about 8x8 pixels, quick to train on a CPU."""

from __future__ import annotations

from torch import nn

from regmixup.networks.contract import GlobalAverage

FEATURES = 64


def small(*, in_channels: int, dropout: float) -> tuple[nn.Module, int]:
    """Three 3x3 convolutions (16, 32, 64 channels; the second halves the image), batch norm, ReLU, mean: 64-d."""

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    layers = [*block(in_channels, 16, 1), *block(16, 32, 2), nn.Dropout(dropout), *block(32, FEATURES, 1)]
    return nn.Sequential(*layers, GlobalAverage()), FEATURES
