"""Track the largest singular value of a convolution's weight by power iteration, for the constraints.

Two unit vectors approach the top singular pair of W: v <- W^T u / ||W^T u||, then u <- W v / ||W v||. A weight changes
little in a training step, so one iteration per forward pass is enough. The vectors are buffers, stored in checkpoints;
they change in training mode only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input
from torch.nn.utils import parametrize

from regmixup.config import check_count
from regmixup.mixing import full_precision
from regmixup.networks.contract import Constraint, evaluated


class Top(NamedTuple):
    """The largest singular value, sigma = u^T W v, differentiable in W, with its vectors, which are constants."""

    sigma: Tensor
    u: Tensor
    v: Tensor


class PowerIteration(nn.Module, ABC):
    """The top singular value and vectors of the linear map that a weight stands for.

    weight: what `times` and `adjoint` understand. shape: of the vectors v that the map takes.
    iterations: per forward pass in training mode. warmup: iterations now, from random vectors.
    """

    u: Tensor
    v: Tensor

    @torch.no_grad()
    def __init__(self, weight: Tensor, shape: tuple[int, ...], *, iterations: int, warmup: int) -> None:
        super().__init__()
        self.iterations = iterations
        v = weight.new_empty(shape).normal_()
        u = torch.randn_like(self.times(weight, v))
        u, v = self._iterate(weight, u, v, warmup)
        self.register_buffer("u", u)
        self.register_buffer("v", v)

    @abstractmethod
    def times(self, weight: Tensor, v: Tensor) -> Tensor:
        """Return W v."""

    @abstractmethod
    def adjoint(self, weight: Tensor, u: Tensor) -> Tensor:
        """Return W^T u."""

    def forward(self, weight: Tensor) -> Top:
        with torch.no_grad():
            u, v = self.u.to(weight.dtype), self.v.to(weight.dtype)
            if self.training:
                u, v = self._iterate(weight, u, v, self.iterations)
                self.u.copy_(u)
                self.v.copy_(v)
            else:
                # A training pass may update the buffers before the backward pass of this one reads its vectors.
                u, v = u.clone(), v.clone()
        return Top((u * self.times(weight, v)).sum(), u, v)

    def _iterate(self, weight: Tensor, u: Tensor, v: Tensor, count: int) -> tuple[Tensor, Tensor]:
        for _ in range(count):
            v = _unit(self.adjoint(weight, u), otherwise=v)
            u = _unit(self.times(weight, v), otherwise=u)
        return u, v


def _unit(vector: Tensor, *, otherwise: Tensor) -> Tensor:
    """Scale a vector to length 1; return `otherwise` for 0, which a zero weight sends everything to."""
    length = torch.linalg.vector_norm(vector)
    return torch.where(length > 0, vector / length, otherwise)


class MatrixPowerIteration(PowerIteration):
    """Power iteration on the weight as a matrix (out, in * kh * kw), the map of one patch. u: (out,)."""

    def __init__(self, weight: Tensor, *, iterations: int, warmup: int) -> None:
        matrix = weight.flatten(1)
        super().__init__(matrix, matrix.shape[1:], iterations=iterations, warmup=warmup)

    def forward(self, weight: Tensor) -> Top:
        return super().forward(weight.flatten(1))

    def times(self, weight: Tensor, v: Tensor) -> Tensor:
        return weight @ v

    def adjoint(self, weight: Tensor, u: Tensor) -> Tensor:
        return weight.T @ u


class ConvolutionPowerIteration(PowerIteration):
    """Power iteration on a whole convolution as a linear map of images of one size.

    shape: (1, C, H, W), one input of the layer; v has this shape, u that of the layer's output. The adjoint is exact
    for every size, also where the stride leaves pixels of the border unused.
    """

    def __init__(self, conv: nn.Conv2d, shape: tuple[int, ...], *, iterations: int, warmup: int) -> None:
        if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
            raise ValueError(
                "norm='convolution' needs convolutions padded with a number of zeros, "
                f"got padding={conv.padding!r} with padding_mode={conv.padding_mode!r}"
            )
        # Before the base's own set-up, which warms up with `times` and `adjoint`.
        self.shape = shape
        self.stride, self.padding, self.dilation, self.groups = conv.stride, conv.padding, conv.dilation, conv.groups
        super().__init__(conv.weight, shape, iterations=iterations, warmup=warmup)

    def times(self, weight: Tensor, v: Tensor) -> Tensor:
        return F.conv2d(v, weight, None, self.stride, self.padding, self.dilation, self.groups)

    def adjoint(self, weight: Tensor, u: Tensor) -> Tensor:
        return conv2d_input(self.shape, weight, u, self.stride, self.padding, self.dilation, self.groups)


class NormalisedWeight(nn.Module, ABC):
    """A parametrization weight -> weight that uses the top singular value, in at least float32 also under autocast.

    In training mode every access to the layer's weight updates the vectors; a forward pass accesses it once. To look at
    it without updating them, switch to evaluation mode.
    """

    def __init__(self, power: PowerIteration) -> None:
        super().__init__()
        self.power = power

    @abstractmethod
    def normalise(self, weight: Tensor, top: Top) -> Tensor:
        """Return the effective weight. weight: (out, in, kh, kw)."""

    def forward(self, weight: Tensor) -> Tensor:
        device, exact = weight.device.type, full_precision(weight)
        # The meta device has no autocast to disable.
        with torch.autocast(device, enabled=False) if device != "meta" else nullcontext():
            return self.normalise(exact, self.power(exact)).to(weight.dtype)


@dataclass(frozen=True, kw_only=True)
class PowerIterated(Constraint):
    """A constraint on every convolution, computed by power iteration."""

    iterations: int = 1
    """Power iterations per forward pass in training mode."""
    warmup: int = 15
    """Power iterations at construction, so that a network can be evaluated before it is trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("iterations", self.iterations)
        check_count("warmup", self.warmup)

    def matrix_power(self, conv: nn.Conv2d) -> PowerIteration:
        return MatrixPowerIteration(conv.weight, iterations=self.iterations, warmup=self.warmup)


def parametrize_convolutions(backbone: nn.Module, make: Callable[[nn.Conv2d], NormalisedWeight]) -> None:
    """Register what `make` returns for each convolution as its weight's parametrization."""
    layers = convolutions(backbone)
    if not layers:
        raise ValueError("constraint must be None for a network without convolutions: there is nothing to constrain")
    for conv in layers:
        # The checks that `unsafe` leaves out would cost a power iteration.
        parametrize.register_parametrization(conv, "weight", make(conv), unsafe=True)


def convolutions(backbone: nn.Module) -> list[nn.Conv2d]:
    """Return all convolutions in order: the stem, those of the blocks, and projections."""
    return [module for module in backbone.modules() if isinstance(module, nn.Conv2d)]


def input_shapes(backbone: nn.Module, example: Tensor) -> dict[nn.Conv2d, tuple[int, ...]]:
    """Return the input shape of each convolution when the backbone is given the example, (1, C, H, W)."""
    shapes: dict[nn.Conv2d, tuple[int, ...]] = {}

    def record(conv: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(conv, nn.Conv2d)
        shapes[conv] = tuple(inputs[0].shape)

    layers = convolutions(backbone)
    hooks = [conv.register_forward_pre_hook(record) for conv in layers]
    try:
        evaluated(backbone, example.to(layers[0].weight) if layers else example)
    finally:
        for hook in hooks:
            hook.remove()
    assert len(shapes) == len(layers), "the forward pass must reach every convolution"
    return shapes
