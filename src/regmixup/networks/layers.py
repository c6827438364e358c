"""Layers our backbones share: convolutions without bias, the global mean, and layers that are cheap when compiled.

A step spends a third of its time (WRN-28-10) or half of it (ResNet-50) reading and writing activations around batch
norm, so the number of reads decides. Batch norm, ReLU and residual sums here compute what torch's do, in a form that
torch.compile turns into fewer and simpler kernels on CUDA:

* the statistics are two plain sums in one reading, and the layer is x * scale + shift, forward and backward;
* whether ReLU let an element pass is computed again from that x, which the backward pass reads anyway, instead of
  being read from ReLU's output;
* numbers per channel, and gradients that several layers add to, are stored once instead of being computed again by
  every kernel that uses them.

Everywhere else (eagerly, on a CPU, in float32, in evaluation) they are torch's own, as is dropout.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

_NOT_CHANNELS = (0, 2, 3)
_BITS = 24
_GOLDEN, _FIRST, _SECOND = (constant - 2**32 for constant in (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35))  # as int32


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution with torch's own initialisation, padded so that stride 1 keeps the image's size."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def he_conv(inputs: int, outputs: int, kernel: int, stride: int = 1, *, fan: Literal["in", "out"] = "out") -> nn.Conv2d:
    """Return a convolution with weights from N(0, 2 / (kernel^2 * channels)) (He et al., 2015).

    fan: which channels to count, those of the output or of the input.
    """
    layer = conv(inputs, outputs, kernel, stride)
    nn.init.kaiming_normal_(layer.weight, mode="fan_in" if fan == "in" else "fan_out", nonlinearity="relu")
    return layer


class GlobalAverage(nn.Module):
    """Mean over all positions: (N, C, H, W) -> (N, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


class Dropout(nn.Dropout):
    """As `nn.Dropout`, with a cheaper random number per element in a compiled step on CUDA.

    torch.compile computes a Philox number for every element, which costs more than the memory traffic of the layers
    around it. Here element i of a layer is dropped if the top 24 bits of h((i xor s) g) are below p 2^24, with s drawn
    per layer and step from torch's generator, g = 2^32 / golden ratio and h the final mixing of MurmurHash3, modulo
    2^32. (Without g, elements a few rows apart are dropped together slightly too often.) The mask is a function of i
    and s, so the backward pass recomputes it instead of reading it.

    >>> layer = Dropout(0.5)
    >>> bool((layer.eval()(torch.ones(4)) == 1).all())
    True
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.p > 0 and x.is_cuda and torch.compiler.is_compiling():
            seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=x.device)
            return torch.where(keeps(x, seed, self.p), x * (1 / (1 - self.p)), 0)
        return super().forward(x)


def keeps(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """Return which elements of x are kept, each with probability 1 - p, for a seed (1,) int32.

    >>> stays = keeps(torch.zeros(100, 100), torch.tensor([7], dtype=torch.int32), 0.1)
    >>> round(float(stays.float().mean()), 3)
    0.9
    """
    index = torch.arange(x.numel(), dtype=torch.int32, device=x.device)
    if x.ndim == 4:  # numbered as channels-last memory is, so that neighbours in memory are neighbours in number
        n, c, height, width = x.shape
        index = index.view(n, height, width, c).permute(0, 3, 1, 2)
    else:
        index = index.view(x.shape)
    return (_mixed((index ^ seed) * _GOLDEN) >> (32 - _BITS) & (2**_BITS - 1)) >= round(p * 2**_BITS)


def _mixed(h: Tensor) -> Tensor:
    """Apply MurmurHash3's final mixing to int32, whose products wrap; the masks make arithmetic shifts logical."""
    h = (h ^ (h >> 16 & 0xFFFF)) * _FIRST
    h = (h ^ (h >> 13 & 0x7FFFF)) * _SECOND
    return h ^ (h >> 16 & 0xFFFF)


class BatchNorm2d(nn.BatchNorm2d):
    """As `nn.BatchNorm2d`, with running statistics and weights; the module docstring says what differs."""

    def forward(self, x: Tensor) -> Tensor:
        if (
            not (self.training and _in_compiled_step(x))
            or self.running_mean is None
            or self.running_var is None
            or self.momentum is None  # an average over all batches, as `torch.optim.swa_utils.update_bn` takes it
        ):
            return super().forward(x)
        y, mean, variance = normalise(x, self.weight, self.bias, self.eps)
        count = x.numel() // x.shape[1]
        if self.track_running_stats:
            with torch.no_grad():
                if self.num_batches_tracked is not None:
                    self.num_batches_tracked.add_(1)
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        return y


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the layers of a model that have running statistics of batch norm, torch's own included."""
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]


class ReLU(nn.ReLU):
    """As `nn.ReLU`; in a compiled step its backward pass depends on its input, not on its output."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x <= 0, 0, x) if _in_compiled_step(x) else super().forward(x)


def stored_gradient(x: Tensor) -> Tensor:
    """Return x; in a compiled step, store the gradient with respect to it.

    For the sum of a residual block, whose gradient is used by the batch norm below, its sums and the next sum, and
    would otherwise grow into an expression over several blocks.
    """
    return _with_stored_gradient(x) if _in_compiled_step(x) else x


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
        mean, square = wide.mean(_NOT_CHANNELS), (wide * wide).mean(_NOT_CHANNELS)
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
        dbias = dwide.sum(_NOT_CHANNELS)
        dweight = ((dwide * wide).sum(_NOT_CHANNELS) - mean * dbias) * inverse
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


def _in_compiled_step(x: Tensor) -> bool:
    """Return True in a compiled step in bfloat16 on CUDA, where these forms were measured to be faster."""
    return x.is_cuda and x.dtype == torch.bfloat16 and torch.compiler.is_compiling()
