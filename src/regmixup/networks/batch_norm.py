"""Batch norm, ReLU and residual sums that move little memory inside a compiled training step.

A step spends a third of its time (WRN-28-10) or half of it (ResNet-50) reading and writing activations around batch
norm, so the number of reads decides. The layers here compute what torch's do, in a form that torch.compile
turns into fewer and simpler kernels on CUDA:

* the statistics are two plain sums in one reading, and the layer is x * scale + shift, forward and backward;
* whether ReLU let an element pass is computed again from that x, which the backward pass reads anyway, instead of
  being read from ReLU's output;
* numbers per channel, and gradients that several layers add to, are stored once instead of being computed again by
  every kernel that uses them.

Everywhere else (eagerly, on a CPU, in float32, in evaluation) they are torch's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_OVER = (0, 2, 3)


class BatchNorm2d(nn.BatchNorm2d):
    """As `nn.BatchNorm2d`, with running statistics and weights; the module docstring says what differs."""

    def forward(self, x: Tensor) -> Tensor:
        if (
            not (self.training and _pays(x))
            or self.running_mean is None
            or self.running_var is None
            or self.momentum is None  # an average over all batches, as `torch.optim.swa_utils.update_bn` takes it
        ):
            return super().forward(x)
        y, mean, variance = normalise(x, self.weight, self.bias, self.eps)
        count = x.numel() // x.shape[1]
        with torch.no_grad():
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        return y


class ReLU(nn.ReLU):
    """As `nn.ReLU`; in a compiled step its backward pass depends on its input, not on its output."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x <= 0, 0, x) if _pays(x) else super().forward(x)


def stored_gradient(x: Tensor) -> Tensor:
    """Return x; in a compiled step, store the gradient with respect to it.

    For the sum of a residual block, whose gradient is used by the batch norm below, its sums and the next sum, and
    would otherwise grow into an expression over several blocks.
    """
    return _with_stored_gradient(x) if _pays(x) else x


def _with_stored_gradient(x: Tensor) -> Tensor:
    stored: Tensor = _StoredGradient.apply(x)
    return stored


def normalise(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return x (N, C, H, W) batch-normalised, and its mean and biased variance per channel in at least float32.

    The variance is the mean square minus the squared mean. In float32 that loses little beside what bfloat16 has lost
    before: with r = |mean| / deviation the relative error is about 6e-8 r^2, while rounding x to bfloat16 adds noise
    of 1e-6 r^2 times the variance.
    """
    y, mean, variance = _Normalise.apply(x, weight, bias, eps)
    return y, mean, variance


class _Normalise(torch.autograd.Function):
    """y = x * scale + shift with scale = weight / deviation, and dx = dy * scale + x * slope + offset."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, square = wide.mean(_OVER), (wide * wide).mean(_OVER)
        variance = (square - mean * mean).clamp(min=0)
        inverse = torch.rsqrt(variance + eps)
        scale = _stored(weight * inverse)
        shift = _stored(bias - mean * scale)
        ctx.save_for_backward(x, scale, mean, inverse)
        ctx.mark_non_differentiable(mean, variance)
        return (wide * _by_channel(scale) + _by_channel(shift)).to(x.dtype), mean, variance

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, scale, mean, inverse = ctx.saved_tensors
        count = x.numel() // x.shape[1]
        wide, dwide = x.to(scale.dtype), dy.to(scale.dtype)
        dbias = dwide.sum(_OVER)
        dweight = ((dwide * wide).sum(_OVER) - mean * dbias) * inverse
        slope = _stored(-scale * inverse * dweight / count)
        offset = _stored(-scale * dbias / count - mean * slope)
        dx = dwide * _by_channel(scale) + wide * _by_channel(slope) + _by_channel(offset)
        return dx.to(x.dtype), dweight, dbias, None


class _StoredGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _stored(gradient.contiguous(memory_format=torch.channels_last))


OPAQUE = (normalise, _with_stored_gradient)
"""The functions with a backward pass of their own; torch.compile takes them as they are, see training.compilation."""


def _stored(x: Tensor) -> Tensor:
    """Return x; torch.compile computes it once and stores it, since only what is in memory has strides."""
    return x.as_strided(x.size(), x.stride())


def _by_channel(values: Tensor) -> Tensor:
    return values[:, None, None]


def _pays(x: Tensor) -> bool:
    """Return whether this is a compiled step in bfloat16 on CUDA, where these forms were measured to be faster."""
    return x.is_cuda and x.dtype == torch.bfloat16 and torch.compiler.is_compiling()
