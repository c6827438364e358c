"""Spectral normalisation with a clamp: no convolution stretches its input by more than c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regmixup.config import check_number
from regmixup.networks.convolution_norm import ConvolutionPowerIteration, input_shapes
from regmixup.networks.power_iteration import (
    NormalisedWeight,
    PowerIterated,
    PowerIteration,
    Top,
    parametrize_convolutions,
)


class _Clamped(NormalisedWeight):
    """W min(1, c / sigma), with a gradient to W on both sides of c."""

    def __init__(self, power: PowerIteration, c: float) -> None:
        super().__init__(power)
        self.c = c

    def normalise(self, weight: Tensor, top: Top) -> Tensor:
        # As a division, so that a weight within the bound is divided by exactly 1.
        return weight / (top.sigma / self.c).clamp(min=1)

    def extra_repr(self) -> str:
        return f"c={self.c:g}"


@dataclass(frozen=True, kw_only=True)
class SpectralNorm(PowerIterated):
    """W min(1, c / sigma(W)) for every convolution: DNN-SN of the paper (Miyato et al., 2018, with a clamp).

    sigma(W) = u^T W v is the largest singular value of W, differentiable in W. A weight with sigma <= c is left as it
    is and trains as usual. Biases, batch norm and the head are free.

    c > 0: 0.5 in the paper, chosen among 0.5, 0.75 and 1; 6 with "convolution" for SNGP on CIFAR.
    norm: "matrix" reads W as a matrix (out, in * kh * kw), as the paper; "convolution" takes the operator norm of the
        convolution on images of the size it really gets (for 1x1 kernels that is the matrix's). On CUDA it follows
        `torch.backends.cudnn.allow_tf32`.
    iterations, warmup: of the power iteration, per forward pass in training mode and at construction.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> conv = nn.Conv2d(2, 2, 1)
    >>> conv.weight.data = torch.tensor([4.0, 1.0]).diag().reshape(2, 2, 1, 1)
    >>> SpectralNorm(c=0.5).apply(conv, example=torch.zeros(1, 2, 8, 8))
    >>> conv.weight.detach().flatten(1)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.1250]])
    """

    c: float = 0.5
    norm: Literal["matrix", "convolution"] = "matrix"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("c", self.c, above=0)

    def apply(self, backbone: nn.Module, example: Tensor) -> None:
        shapes = input_shapes(backbone, example) if self.norm == "convolution" else {}

        def power(conv: nn.Conv2d) -> PowerIteration:
            if self.norm == "matrix" or (conv.kernel_size == (1, 1) and conv.groups == 1):
                return self.matrix_power(conv)
            return ConvolutionPowerIteration(conv, shapes[conv], iterations=self.iterations, warmup=self.warmup)

        parametrize_convolutions(backbone, lambda conv: _Clamped(power(conv), self.c))
