"""Work on pieces of data in as many threads as torch uses. NumPy and torch release Python's lock while they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Found = TypeVar("Found")


def each_piece(function: Callable[[Tensor], Found], pieces: Sequence[Tensor]) -> list[Found]:
    """[function(piece) for piece in pieces]; on the CPU, in threads.

    Independent threads wait for each other once, at the end, where torch's own wait after every operation.
    """
    threads = min(torch.get_num_threads(), len(pieces))
    if threads < 2 or pieces[0].device.type != "cpu":
        return [function(piece) for piece in pieces]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, pieces))
