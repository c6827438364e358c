"""Means over an epoch, summed on the device and read only now and then."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Totals = dict[str, tuple[float, float]]
"""For each name the sum over images so far, and how many images it is over."""


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
        for name, (total, count) in totals.items():
            self._of((name,)).copy_(torch.tensor([total, count], dtype=self.dtype))

    def totals(self) -> Totals:
        """What has been added so far; waits for the device."""
        parts = []
        for names, so_far in self._sums.items():
            *sums, count = so_far.tolist()
            parts.append({name: (total, count) for name, total in zip(names, sums, strict=True) if count})
        return combine(parts)

    def _of(self, names: tuple[str, ...]) -> Tensor:
        if names not in self._sums:
            self._sums[names] = torch.zeros(len(names) + 1, dtype=self.dtype, device=self.device)
        return self._sums[names]


def precise(device: torch.device) -> torch.dtype:
    """The best floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def combine(parts: Sequence[Totals]) -> Totals:
    """Several totals together, such as those of several processes."""
    names = dict.fromkeys(name for part in parts for name in part)
    found = {name: [part[name] for part in parts if name in part] for name in names}
    return {name: (sum(s for s, _ in pairs), sum(n for _, n in pairs)) for name, pairs in found.items()}


def between(early: Totals, late: Totals) -> Totals:
    """What was added between two looks at the same totals.

    >>> between({"loss": (6.0, 2.0)}, {"loss": (9.0, 3.0), "mixed": (4.0, 1.0)})
    {'loss': (3.0, 1.0), 'mixed': (4.0, 1.0)}
    """
    before = {name: early.get(name, (0.0, 0.0)) for name in late}
    added = {name: (total - before[name][0], count - before[name][1]) for name, (total, count) in late.items()}
    return {name: pair for name, pair in added.items() if pair[1]}


def means(totals: Totals) -> dict[str, float]:
    """The mean over images for each name."""
    return {name: total / count for name, (total, count) in totals.items()}
