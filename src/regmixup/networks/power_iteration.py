"""Track the largest singular value of a convolution's weight by power iteration, for the constraints.

Two unit vectors approach the top singular pair of W: v <- W^T u / ||W^T u||, then u <- W v / ||W v||. A weight changes
little in a training step, so one iteration per forward pass is enough. The vectors are buffers, stored in checkpoints;
they change in training mode only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input


class Top(NamedTuple):
    """The largest singular value, sigma = u^T W v, differentiable in W, with its vectors, which are constants."""

    sigma: Tensor
    u: Tensor
    v: Tensor


class PowerIteration(nn.Module):
    """The top singular value and vectors of the linear map that a convolution's weight stands for.

    image_shape: None for the weight as a matrix (out, in * kh * kw), the map of one patch, with u (out,). Or (1, C, H,
    W), one input of the layer, for the convolution of whole images, with u of the shape of its output. The adjoint is
    exact for every size, also where the stride leaves pixels of the border unused.
    iterations: per forward pass in training mode. warmup: iterations now, from random vectors.
    """

    u: Tensor
    v: Tensor

    @torch.no_grad()
    def __init__(
        self, conv: nn.Conv2d, image_shape: tuple[int, ...] | None = None, *, iterations: int, warmup: int
    ) -> None:
        super().__init__()
        self.image_shape, self.iterations = image_shape, iterations
        self.geometry: Any = conv.stride, conv.padding, conv.dilation, conv.groups
        v = conv.weight.new_empty(image_shape or conv.weight.flatten(1).shape[1:]).normal_()
        u = torch.randn_like(self.times(conv.weight, v))
        u, v = self._iterate(conv.weight, u, v, warmup)
        self.register_buffer("u", u)
        self.register_buffer("v", v)

    def times(self, weight: Tensor, v: Tensor) -> Tensor:
        """Return W v."""
        if self.image_shape is None:
            return weight.flatten(1) @ v
        return F.conv2d(v, weight, None, *self.geometry)

    def adjoint(self, weight: Tensor, u: Tensor) -> Tensor:
        """Return W^T u."""
        if self.image_shape is None:
            return weight.flatten(1).T @ u
        return conv2d_input(self.image_shape, weight, u, *self.geometry)

    def forward(self, weight: Tensor) -> Top:
        if self.training:
            u, v = self.settle(weight, self.iterations)
        else:
            # Copies: a training pass may update the buffers before the backward pass of this one reads its vectors.
            u, v = self.u.to(weight.dtype, copy=True), self.v.to(weight.dtype, copy=True)
        return Top((u * self.times(weight, v)).sum(), u, v)

    @torch.no_grad()
    def settle(self, weight: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Iterate the vectors for a weight, in any mode, and return them."""
        u, v = self._iterate(weight, self.u.to(weight.dtype), self.v.to(weight.dtype), count)
        self.u.copy_(u)
        self.v.copy_(v)
        return u, v

    def _iterate(self, weight: Tensor, u: Tensor, v: Tensor, count: int) -> tuple[Tensor, Tensor]:
        for _ in range(count):
            v = _unit(self.adjoint(weight, u), otherwise=v)
            u = _unit(self.times(weight, v), otherwise=u)
        return u, v


def _unit(vector: Tensor, *, otherwise: Tensor) -> Tensor:
    """Scale a vector to length 1; return `otherwise` for 0, which a zero weight sends everything to."""
    length = torch.linalg.vector_norm(vector)
    return torch.where(length > 0, vector / length, otherwise)
