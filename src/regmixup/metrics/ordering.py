"""Array operations that the metrics share: precision, pieces of a table, order, places, cumulative sums.

On the CPU, sorting and searching go through NumPy, which is several times as fast as torch there.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def precise(values: Tensor) -> Tensor:
    """Return the values in float64, or in float32 on devices without it."""
    return values.float() if values.device.type == "mps" else values.double()


def pieces_of(table: Tensor, size: int) -> list[slice]:
    """Return the rows of a table (N, K) in consecutive pieces of at most `size` values; one empty piece if N = 0."""
    rows = max(1, size // table.shape[1])
    return [slice(first, min(first + rows, len(table))) for first in range(0, max(1, len(table)), rows)]


def sorted_values(values: Tensor) -> Tensor:
    """Return (N,) values in ascending order."""
    if values.device.type != "cpu":
        return values.sort().values
    return torch.from_numpy(np.sort(values.detach().numpy()))


def ascending_order(values: Tensor) -> Tensor:
    """Return the indices that sort non-negative (N,) values, stably.

    >>> ascending_order(torch.tensor([0.5, 0.25, 0.5]))
    tensor([1, 0, 2])
    """
    if values.device.type != "cpu":
        return values.argsort(stable=True)
    if values.dtype != torch.float32:
        return torch.from_numpy(np.argsort(values.numpy(), kind="stable"))
    # The bits of non-negative float32 numbers order like the numbers (+ 0.0 removes the sign of a zero). With the index
    # below them, sorting 64-bit keys is a stable argsort, in a third of the time.
    keys = ((values + 0.0).view(torch.int32).long() << 32) | torch.arange(len(values))
    return sorted_values(keys) & 0xFFFFFFFF


def places(ordered: Tensor, values: Tensor, *, right: bool = False) -> Tensor:
    """Count the `ordered` numbers that are < each of the `values`, or <= with `right`; fastest for sorted values.

    >>> places(torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([0.0, 2.0]), right=True)
    tensor([0, 3])
    """
    if ordered.device.type != "cpu":
        common = torch.promote_types(ordered.dtype, values.dtype)
        return torch.searchsorted(ordered.to(common), values.to(common), right=right)
    return torch.from_numpy(np.searchsorted(ordered.numpy(), values.numpy(), side="right" if right else "left"))


def positions(ordered: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return `places` without and with `right`.

    >>> positions(torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([0.0, 2.0]))
    (tensor([0, 1]), tensor([0, 3]))
    """
    below = places(ordered, values)
    tied = ordered[below.clamp(max=len(ordered) - 1)] == values
    # Ties are rare, and only they need the second search.
    below_or_tied = below.clone()
    below_or_tied[tied] = places(ordered, values[tied], right=True)
    return below, below_or_tied


def take_columns(rows: Tensor, order: Tensor) -> Tensor:
    """Return (R, N) with its columns in the given order."""
    if rows.device.type != "cpu":
        return rows.index_select(1, order)
    return torch.from_numpy(np.take(rows.numpy(), order.numpy(), axis=1))


def cumulative(rows: Tensor) -> Tensor:
    """Return the sums of the first 0, 1, ..., N columns: (R, N) -> (R, N + 1).

    >>> cumulative(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[0., 1., 3., 6.]])
    """
    sums = rows.new_zeros(len(rows), rows.shape[1] + 1)
    torch.cumsum(rows, dim=1, out=sums[:, 1:])
    return sums
