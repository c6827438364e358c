"""Samples in the order of their values, and how often each of them counts.

Every metric that depends on an order is computed from `Ranked` samples. They are sorted once; the weights of a
bootstrap resample only change how much lies before each place. A metric of samples with weights (R, N) returns R
values, (R,), each that of the samples repeated so often; without weights it returns one value, a float.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from regmixup.metrics.pieces import precise

Value: TypeAlias = Any
"""A float; for weights (R, N) a tensor (R,)."""


@dataclass(frozen=True)
class Ranked:
    """values: (N,) rising; order: (N,) their places before they were sorted, equal ones in that order.

    weights: (R, N), how often each sample counts, as they were before; None for once.

    >>> samples = Ranked.of(torch.tensor([0.5, 0.1, 0.9]))
    >>> samples.weighted(torch.tensor([[2, 0, 1]])).before
    tensor([[0., 0., 2., 3.]], dtype=torch.float64)
    """

    values: Tensor
    order: Tensor
    weights: Tensor | None = None

    @classmethod
    def of(cls, values: Tensor) -> Ranked:
        """Sort values (N,)."""
        ordered = values.sort(stable=True)
        return cls(ordered.values, ordered.indices)

    def weighted(self, weights: Tensor) -> Ranked:
        """Return the same samples with weights (R, N)."""
        return replace(self, weights=weights)

    @cached_property
    def times(self) -> Tensor:
        """(R, N) float64: the weights in the order of the values."""
        if self.weights is None:
            return precise(torch.ones_like(self.values))[None]
        return precise(take_columns(self.weights.to(self.order.device), self.order))

    @cached_property
    def before(self) -> Tensor:
        """(R, N + 1): the weight of the samples with the 0, 1, ..., N smallest values."""
        return self.cumulated()

    @property
    def total(self) -> Tensor:
        """(R, 1): the weight of all."""
        return self.before[:, -1:]

    def cumulated(self, terms: Tensor | None = None) -> Tensor:
        """Return the weighted sums of terms (N,), by default 1, over the first 0, 1, ..., N samples: (R, N + 1).

        terms: in the order of the values.
        """
        products = self.times if terms is None else self.times * terms
        sums = products.new_zeros(len(products), products.shape[1] + 1)
        torch.cumsum(products, dim=1, out=sums[:, 1:])
        return sums

    def weight_below(self, values: Tensor, *, tied: bool = False) -> Tensor:
        """Return the weight of the samples whose value is < each of these (M,), or <= it if `tied`: (R, M)."""
        return take_columns(self.before, torch.searchsorted(self.values, values, right=tied))

    def value_at(self, weight: Tensor) -> Tensor:
        """Return the value of the first sample up to which more than this weight (R, M) lies, (R, M)."""
        return self.values[torch.searchsorted(self.before, weight, right=True) - 1]


def take_columns(rows: Tensor, order: Tensor) -> Tensor:
    """Return the columns of (R, N) with these numbers (M,), (R, M)."""
    return rows.gather(1, order.expand(len(rows), -1))  # on a CPU twice as fast as `index_select`
