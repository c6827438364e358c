"""Compute on pieces of data in as many threads as torch uses; NumPy and torch release the GIL while they compute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Found = TypeVar("Found")
Item = TypeVar("Item")


def ahead(function: Callable[[Item], Found], items: Iterable[Item], *, most: int) -> Iterator[Found]:
    """Yield function(item) for every item, in order; up to `most` of them are computed ahead, in threads.

    >>> list(ahead(len, ["a", "bc", "def"], most=2))
    [1, 2, 3]
    """
    with ThreadPoolExecutor(most) as pool:
        waiting: deque[Future[Found]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def in_order(function: Callable[[Item], Found], pieces: Sequence[Item], device: torch.device) -> Iterator[Found]:
    """Yield function(piece) in the order of the pieces; where the data is on the CPU, computed in threads.

    Independent threads wait for each other once, at the end, where torch's own wait after every operation.
    """
    threads = min(torch.get_num_threads(), len(pieces))
    if threads < 2 or device.type != "cpu":
        yield from map(function, pieces)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, pieces)
