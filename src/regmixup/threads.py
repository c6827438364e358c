"""Work on pieces of data in as many threads as torch uses. NumPy and torch release Python's lock while they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Found = TypeVar("Found")


def each_piece(function: Callable[[Tensor], Found], pieces: Sequence[Tensor]) -> list[Found]:
    """[function(piece) for piece in pieces]; on the CPU, in threads.

    Independent threads wait for each other once, at the end, where torch's own wait after every operation.
    """
    return list(in_order(function, pieces))


def in_order(function: Callable[[Tensor], Found], pieces: Sequence[Tensor]) -> Iterator[Found]:
    """The same one by one, in the order of the pieces, for results that need not all be held at once."""
    threads = min(torch.get_num_threads(), len(pieces))
    if threads < 2 or pieces[0].device.type != "cpu":
        yield from map(function, pieces)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, pieces)
