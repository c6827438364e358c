"""AugMix's mixture of chains of operations, one augmented version of an image (Hendrycks et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from regmixup.augmentations._operations import Severity, apply_step, draw_steps
from regmixup.augmentations.basic import Augmentation, as_pixels
from regmixup.config import Bounds, Count, Positive, check_count
from regmixup.mixing import Draw, ImageSize, full_precision, sample_beta, sample_dirichlet, sample_uniform, take

_MOST_OPERATIONS = 3  # of a chain of random depth


@dataclass(frozen=True, kw_only=True)
class ChainsDraw(Draw):
    """The randomness for N images, `width` chains each, up to D operations long.

    operation: (N, width, D) int64, indices into `_operations.NAMES`; 0 where the chain has ended.
    level, sign: (N, width, D) float64, the strength of each operation, and 1 or -1.
    weight: (N, width) float64, w, the share of each chain; sums to 1 over the chains.
    blend: (N,) float64, m, the share of all chains together; the image itself has 1 - m.
    """

    operation: Tensor
    level: Tensor
    sign: Tensor
    weight: Tensor
    blend: Tensor


@dataclass(frozen=True, kw_only=True)
class AugMixChains(Augmentation):
    """(1 - m) x + m sum_j w_j chain_j(x), m ~ Beta(alpha, alpha), w ~ Dirichlet(alpha, ..., alpha).

    A chain applies operations drawn with replacement, each at its own level L ~ U(0.1, severity), to pixels rounded to
    0..255, as PIL does; `_operations` lists them. So x must hold pixels, uint8 or floats in [0, 1]; normalising is left
    to the network's first layer. Colour, contrast, brightness and sharpness of the released code, which overlap the
    corruptions of CIFAR-C and ImageNet-C, are left out.
    """

    alpha: Positive = field(default=1.0, kw_only=False)
    """Parameter of the Dirichlet and Beta distributions."""
    width: Count = 3
    """Chains per image."""
    depth: Annotated[int, Bounds(check_count, least=-1)] = -1
    """Operations per chain; -1 draws 1, 2 or 3 for every chain."""
    severity: Severity = 3.0
    """The highest level, at most 10; 3 on CIFAR, 1 on ImageNet in the released code."""

    @property
    def _longest(self) -> int:
        return _MOST_OPERATIONS if self.depth == -1 else self.depth

    def draw(self, batch_size: int, image_size: ImageSize, generator: torch.Generator | None = None) -> Draw:
        chains = (batch_size, self.width)
        operation, level, sign = draw_steps((*chains, self._longest), self.severity, generator)
        if self.depth == -1:
            length = 1 + (_MOST_OPERATIONS * sample_uniform((*chains, 1), generator)).long()
            operation = operation * (torch.arange(self._longest, device=operation.device) < length)
        weight = sample_dirichlet(self.alpha, self.width, (batch_size,), generator)
        blend = sample_beta(self.alpha, (batch_size,), generator)
        return ChainsDraw(operation=operation, level=level, sign=sign, weight=weight, blend=blend)

    def apply(self, x: Tensor, draw: Draw) -> Tensor:
        """Return the augmented version of each image. Half precision is mixed in float32."""
        pixels = as_pixels(x, self)
        take(draw, "operation", (len(x), self.width, self._longest), self)
        assert isinstance(draw, ChainsDraw)
        chains = pixels[:, None].expand(-1, self.width, *x.shape[1:])
        images = chains.reshape(-1, *x.shape[1:])
        for position in range(self._longest):
            at = (..., position)
            images = apply_step(images, draw.operation[at], draw.level[at], draw.sign[at])
        exact = full_precision(x)
        weight = draw.weight.to(exact.dtype)[..., None, None, None]
        blend = draw.blend.to(exact.dtype)[..., None, None, None]
        mixture = (weight * images.reshape(chains.shape)).sum(dim=1) / 255
        return ((1 - blend) * exact + blend * mixture).to(x.dtype)
