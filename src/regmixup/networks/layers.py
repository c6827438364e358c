"""The convolutions all our networks are made of: without bias, padded so that stride 1 keeps the image's size."""

from __future__ import annotations

from typing import Literal

from torch import nn


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """With torch's own initialisation."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def he_conv(inputs: int, outputs: int, kernel: int, stride: int = 1, *, fan: Literal["in", "out"] = "out") -> nn.Conv2d:
    """With weights from N(0, 2 / (kernel^2 * channels)), counting output or input channels (He et al., 2015)."""
    layer = conv(inputs, outputs, kernel, stride)
    nn.init.kaiming_normal_(layer.weight, mode="fan_in" if fan == "in" else "fan_out", nonlinearity="relu")
    return layer
