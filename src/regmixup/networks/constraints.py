"""Constraints on the weights of every convolution: spectral normalisation and stable rank normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from regmixup.config import check_number
from regmixup.networks.power_iteration import (
    ConvolutionPowerIteration,
    NormalisedWeight,
    PowerIterated,
    PowerIteration,
    Top,
    input_shapes,
    parametrize_convolutions,
)

Model = TypeVar("Model", bound=nn.Module)

_SMALLEST_SIGMA = 1e-12


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

    sigma(W) = u^T W v is the largest singular value of W, differentiable in W. A weight with sigma <= c is unchanged
    and trains as usual. Biases, batch norm and the head are free.

    >>> _ = torch.manual_seed(0)
    >>> conv = nn.Conv2d(2, 2, 1)
    >>> conv.weight.data = torch.tensor([4.0, 1.0]).diag().reshape(2, 2, 1, 1)
    >>> SpectralNorm(c=0.5).apply(conv, example=torch.zeros(1, 2, 8, 8))
    >>> conv.weight.detach().flatten(1)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.1250]])
    """

    c: float = 0.5
    """Bound > 0: 0.5 in the paper, chosen among 0.5, 0.75 and 1; 6 with the norm convolution for SNGP on CIFAR."""
    norm: Literal["matrix", "convolution"] = "matrix"
    """matrix: W as a matrix (out, in * kh * kw), as in the paper. convolution: the operator norm of the convolution on
    images of the size it really gets (for 1x1 kernels, the matrix's); on CUDA it follows
    `torch.backends.cudnn.allow_tf32`."""

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


class _StableRankNormalised(NormalisedWeight):
    """u v^T + s (W / sigma - u v^T), with the largest s <= 1 whose stable rank is at most `target`."""

    def __init__(self, power: PowerIteration, target: float) -> None:
        super().__init__(power)
        self.target = target

    def normalise(self, weight: Tensor, top: Top) -> Tensor:
        unit = weight / top.sigma.clamp(min=_SMALLEST_SIGMA)
        if self.target >= min(len(top.u), len(top.v)):
            return unit  # no matrix has a larger stable rank
        share: Tensor | float = 0.0
        if self.target > 1:
            # s = min(1, sqrt((target - 1) / ||W / sigma - u v^T||^2)). As u^T W v = sigma, that is ||W / sigma||^2 - 1.
            share = 1 / ((unit.square().sum() - 1) / (self.target - 1)).clamp(min=1).sqrt()
        return torch.lerp(unit, torch.outer(top.u, top.v).view(weight.shape), 1 - share)

    def extra_repr(self) -> str:
        return f"target={self.target:g}"


@dataclass(frozen=True, kw_only=True)
class StableRank(PowerIterated):
    """Spectral norm 1 and stable rank at most R for every convolution: DNN-SRN of the paper (Sanyal et al., 2020).

    The stable rank ||W||_F^2 / sigma^2 of a matrix W (out, in * kh * kw) lies between 1 and its rank. With sigma and
    the vectors u, v of the largest singular value, and R = ratio * min(out, in * kh * kw) but at least 1:

        D = W / sigma - u v^T,    effective weight = u v^T + D min(1, sqrt(R - 1) / ||D||_F)

    so that the largest singular value stays 1 and the others shrink together, if they have to. Biases, batch norm and
    the head are free. Unlike `SpectralNorm`, a weight with sigma < 1 is scaled up.

    Singular values 2, 1, 1, 1 become 1 and three of sqrt(0.2 / 3), with stable rank 0.3 * 4 = 1.2:

    >>> _ = torch.manual_seed(0)
    >>> conv = nn.Conv2d(4, 4, 1)
    >>> conv.weight.data = torch.tensor([2.0, 1.0, 1.0, 1.0]).diag().reshape(4, 4, 1, 1)
    >>> StableRank(ratio=0.3).apply(conv, example=torch.zeros(1, 4, 8, 8))
    >>> conv.weight.detach().flatten(1).diagonal()
    tensor([1.0000, 0.2582, 0.2582, 0.2582])
    """

    ratio: float = 0.3
    """Share of the full stable rank, above 0 and at most 1: 0.3 in the paper, chosen among 0.3, 0.5, 0.7 and 0.9; 1
    leaves W / sigma. Where R is 1 although the matrix has 2 or more rows (fewer than 4 at 0.3), the effective weight is
    u v^T and its gradient 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("ratio", self.ratio, above=0, most=1)

    def apply(self, backbone: nn.Module, example: Tensor) -> None:
        def normalised(conv: nn.Conv2d) -> NormalisedWeight:
            target = max(1.0, self.ratio * min(conv.weight.flatten(1).shape))
            return _StableRankNormalised(self.matrix_power(conv), target)

        parametrize_convolutions(backbone, normalised)


def bake(model: Model) -> Model:
    """Replace every constrained weight by its effective value, in place, which leaves a plain network.

    It gives the logits of the model in evaluation mode, without the cost of the constraint, and its state dict has the
    names of the unconstrained network. Training it further is unconstrained.

    >>> from regmixup.networks import build
    >>> model = build("small", num_classes=10, constraint="spectral_norm")
    >>> bake(model).state_dict().keys() == build("small", num_classes=10).state_dict().keys()
    True
    """
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            constrained = module.parametrizations
            assert isinstance(constrained, nn.ModuleDict)
            constrained.eval()  # so that accessing the weight runs no further power iteration
            # A deep copy shares the class that torch made for its original, whose weight would go with the copy's.
            kind = type(module)
            module.__class__ = type(kind.__name__, kind.__bases__, dict(vars(kind)))
            for name in list(constrained):
                parametrize.remove_parametrizations(module, name, leave_parametrized=True)
    return model
