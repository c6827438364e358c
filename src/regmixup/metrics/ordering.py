"""Sorting and searching on the CPU go through NumPy, several times faster there than torch; on other devices through
torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def precise(values: Tensor) -> Tensor:
    """float64, or float32 on devices without it."""
    return values.float() if values.device.type == "mps" else values.double()


def sorted_values(values: Tensor) -> Tensor:
    """(N,) in ascending order."""
    if values.device.type != "cpu":
        return values.sort().values
    return torch.from_numpy(np.sort(values.detach().numpy()))


def sorted_pairs(values: Tensor, flags: Tensor) -> tuple[Tensor, Tensor]:
    """Non-negative (N,) values in ascending order, equal ones in the order given, and the (N,) flags that go with them.

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
    """How many of the `ordered` numbers are < each of the `values`, <= for `right`; quick if those are sorted too.

    >>> places(torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([0.0, 2.0]), right=True)
    tensor([0, 3])
    """
    if ordered.device.type != "cpu":
        common = torch.promote_types(ordered.dtype, values.dtype)
        return torch.searchsorted(ordered.to(common), values.to(common), right=right)
    return torch.from_numpy(np.searchsorted(ordered.numpy(), values.numpy(), side="right" if right else "left"))


def positions(ordered: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """`places` on both sides.

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
    """(R, N) with its columns in the given order."""
    if rows.device.type != "cpu":
        return rows.index_select(1, order)
    return torch.from_numpy(np.take(rows.numpy(), order.numpy(), axis=1))
