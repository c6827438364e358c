"""Read tables in pieces: their precision, some of their rows, and threads that work on several pieces at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from regmixup.types import Predictions

Input = TypeVar("Input")
Result = TypeVar("Result")


def precise(values: Tensor) -> Tensor:
    """Return the values in float64, or in float32 on devices without it."""
    return values.float() if values.device.type == "mps" else values.double()


def pieces_of(table: Tensor, size: int) -> list[slice]:
    """Return the rows of a table (N, K) in consecutive pieces of at most `size` values; one empty piece if N = 0."""
    rows = max(1, size // table.shape[1])
    return [slice(first, min(first + rows, len(table))) for first in range(0, max(1, len(table)), rows)]


def select_samples(predictions: Predictions, chosen: slice | Tensor) -> Predictions:
    """Return some of the samples, a slice or a mask, with what metrics and scores that are not fitted need."""
    probs, members = predictions.probs, predictions.member_logits
    return Predictions(
        predictions.logits[chosen],
        predictions.labels[chosen],
        probs=probs[chosen] if probs is not None else None,
        member_logits=members[:, chosen] if members is not None else None,
        dataset=predictions.dataset,
        role=predictions.role,
        info=predictions.info,
    )


def map_ahead(function: Callable[[Input], Result], inputs: Iterable[Input], *, most: int) -> Iterator[Result]:
    """Yield the function's result for every input, in order; up to `most` are computed ahead, in threads.

    >>> list(map_ahead(len, ["a", "bc", "def"], most=2))
    [1, 2, 3]
    """
    with ThreadPoolExecutor(most) as pool:
        waiting: deque[Future[Result]] = deque()
        for argument in inputs:
            waiting.append(pool.submit(function, argument))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def map_pieces(function: Callable[[slice], Result], table: Tensor, size: int) -> Iterator[Result]:
    """Yield the function's result for every piece of a table, see `pieces_of`, in order.

    On the CPU the pieces are computed in as many threads as torch uses: these wait for each other once, at the end,
    where torch's own wait after every operation. NumPy and torch release the GIL while they compute.
    """
    pieces, threads = pieces_of(table, size), torch.get_num_threads()
    if table.device.type != "cpu" or min(threads, len(pieces)) < 2:
        return map(function, pieces)
    return map_ahead(function, pieces, most=threads)
