"""Noise: every value of every pixel independently. Images are uint8 (N, C, H, W)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from regmixup.data.corruptions.parts import normal, truncate, uniform
from regmixup.mixing import to_float


def gaussian_noise(images: Tensor, scale: float, *, generator: torch.Generator | None) -> Tensor:
    """Return x + N(0, scale^2)."""
    noise = normal(images.shape, images.device, generator)
    return truncate(noise.mul_(scale).add_(to_float(images)))


def speckle_noise(images: Tensor, scale: float, *, generator: torch.Generator | None) -> Tensor:
    """Return x + x N(0, scale^2)."""
    x = to_float(images)
    noise = normal(images.shape, images.device, generator)
    return truncate(noise.mul_(scale).mul_(x).add_(x))


def impulse_noise(images: Tensor, amount: float, *, generator: torch.Generator | None) -> Tensor:
    """Set a fraction `amount` of the values to 0 or 255, half each (salt and pepper)."""
    u = uniform(images.shape, images.device, generator)
    return images.masked_fill(u < amount, 255).masked_fill(u < amount / 2, 0)


def shot_noise(images: Tensor, photons: float, *, generator: torch.Generator | None) -> Tensor:
    """Return Poisson(photons x) / photons: a white pixel counts `photons` photons on average.

    There are only 256 grey levels, so there are only 256 distributions: each is a row of an alias table (Walker, 1977),
    and a sample is one uniform number and one look-up, the same on every device. The low 8 bits of the uniform (24 bits
    in all) pick a column, the other 16 decide between the column's own value and its alias.
    """
    threshold, alias = alias_table(photons)
    u = (uniform(images.shape, images.device, generator) * 2**24).int()
    column = u & 255
    cell = images.int() * 256 + column
    keep = (u >> 8) < torch.from_numpy(threshold).to(images.device).take(cell.long())
    return torch.where(keep, column.to(torch.uint8), torch.from_numpy(alias).to(images.device).take(cell.long()))


@lru_cache(maxsize=16)
def alias_table(photons: float) -> tuple[np.ndarray, np.ndarray]:
    """Return shot noise of every grey level as an alias table: thresholds (256, 256) in units of 2^-16, and aliases.

    Row v describes 256 equally likely columns: column k gives the pixel k with probability threshold / 2^16, and
    its alias otherwise. It is filled by Robin Hood's rule: the poorest value is topped up by the richest, and is done.
    """
    from scipy.special import gammaln, xlogy

    counts, mean = np.arange(int(photons) + 1), np.arange(256)[:, None] / 255 * photons
    share = np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1))
    share[:, -1] += 1 - share.sum(axis=1)  # more photons than a white pixel's mean are clipped to white
    pixel = (np.clip(counts / photons, 0, 1) * 255).astype(np.int64)
    wealth = np.zeros((256, 256))
    np.add.at(wealth.T, pixel, share.T * 256)
    threshold, alias = np.ones((256, 256)), np.tile(np.arange(256), (256, 1))
    row, done = np.arange(256), np.zeros((256, 256), dtype=bool)
    for _ in range(255):
        poor = np.where(done, np.inf, wealth).argmin(axis=1)
        rich = np.where(done, -np.inf, wealth).argmax(axis=1)
        threshold[row, poor], alias[row, poor], done[row, poor] = wealth[row, poor], rich, True
        wealth[row, rich] -= 1 - wealth[row, poor]
    return np.rint(threshold.clip(0, 1) * 2**16).astype(np.int32), alias.astype(np.uint8)
