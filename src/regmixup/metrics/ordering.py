"""Array operations that the metrics share: precision, pieces of a table, sorting, searching, cumulative sums.

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


def sorted_pairs(values: Tensor, flags: Tensor) -> tuple[Tensor, Tensor]:
    """Return non-negative (N,) values in ascending order, stably, and the (N,) flags that belong to them.

    >>> sorted_pairs(torch.tensor([0.5, 0.25, 0.5]), torch.tensor([True, False, False]))
    (tensor([0.2500, 0.5000, 0.5000]), tensor([False,  True, False]))
    """
    if values.device.type != "cpu" or values.dtype != torch.float32:
        ordered, order = values.sort(stable=True)
        return ordered, flags[order]
    # The bits of non-negative float32 numbers order like the numbers (+ 0.0 removes the sign of a zero). Below them
    # the index breaks ties, and the last bit is the flag: sorting these 64-bit keys sorts everything.
    keys = ((values.detach() + 0.0).view(torch.int32).long() << 32) | (torch.arange(len(values)) << 1) | flags
    keys = sorted_values(keys)
    return (keys >> 32).int().view(torch.float32), (keys & 1).bool()


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


def cumulative(rows: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return the sums of the first 0, 1, ..., N columns: (R, N) -> (R, N + 1)."""
    found = torch.zeros(len(rows), rows.shape[1] + 1, dtype=dtype or rows.dtype, device=rows.device)
    torch.cumsum(rows, dim=1, dtype=found.dtype, out=found[:, 1:])
    return found
