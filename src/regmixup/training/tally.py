"""Means over an epoch, summed on the device and read only now and then."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Totals = dict[tuple[str, ...], list[float]]
"""For names that are reported together the sum of each over images so far and, last, the number of these images."""


class Tally:
    """Running sums of what steps report. A part that only some steps have, as under Alternate, is averaged over those.

    >>> tally = Tally(torch.device("cpu"))
    >>> tally.add(("loss", "clean"), torch.tensor([6.0, 2.0]), count=2)
    >>> tally.add(("loss",), torch.tensor([3.0]), count=1)
    >>> means(tally.totals())
    {'loss': 3.0, 'clean': 1.0}
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.dtype = precise(device)
        self._sums: dict[tuple[str, ...], Tensor] = {}

    def add(self, names: tuple[str, ...], sums: Tensor, count: int) -> None:
        """Add sums over `count` images, one for each name. Nothing is read from the device."""
        if names:
            so_far = self._of(names)
            so_far[:-1] += sums
            so_far[-1] += count

    def restore(self, totals: Totals) -> None:
        """Go on from these totals, in place: a captured step adds to the tensors that it was captured with."""
        for so_far in self._sums.values():
            so_far.zero_()
        for names, values in totals.items():
            self._of(names).copy_(torch.tensor(values, dtype=self.dtype))

    def totals(self) -> Totals:
        """What has been added so far; waits for the device."""
        found = {names: so_far.tolist() for names, so_far in self._sums.items()}
        return {names: values for names, values in found.items() if values[-1]}

    def _of(self, names: tuple[str, ...]) -> Tensor:
        if names not in self._sums:
            self._sums[names] = torch.zeros(len(names) + 1, dtype=self.dtype, device=self.device)
        return self._sums[names]


def precise(device: torch.device) -> torch.dtype:
    """The best floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def combine(parts: Sequence[Totals]) -> Totals:
    """Several totals together, such as those of several processes."""
    found: dict[tuple[str, ...], list[list[float]]] = {}
    for part in parts:
        for names, values in part.items():
            found.setdefault(names, []).append(values)
    return {names: [sum(column) for column in zip(*rows, strict=True)] for names, rows in found.items()}


def between(early: Totals, late: Totals) -> Totals:
    """What was added between two looks at the same totals.

    >>> between({("loss",): [6.0, 2.0]}, {("loss",): [9.0, 3.0], ("mixed",): [4.0, 1.0]})
    {('loss',): [3.0, 1.0], ('mixed',): [4.0, 1.0]}
    """
    minus = {names: [-value for value in values] for names, values in early.items() if names in late}
    return {names: values for names, values in combine([late, minus]).items() if values[-1]}


def means(totals: Totals) -> dict[str, float]:
    """The mean over images for each name."""
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for names, (*values, count) in totals.items():
        for name, value in zip(names, values, strict=True):
            sums[name] = sums.get(name, 0.0) + value
            counts[name] = counts.get(name, 0.0) + count
    return {name: total / counts[name] for name, total in sums.items()}
