"""Reports of a run: the callbacks that get them, and the sums on the device behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regmixup.metrics.pieces import precise
from regmixup.training.checkpoint import Totals

Record = dict[str, Any]
"""A report of a step (`step` of `steps` in `epoch`, learning rate, throughput since the last report) or of an epoch
(its seconds), with the means over the epoch's images so far."""


def ignore(report: object) -> None:
    """Do nothing: the callback where none is given."""


@dataclass(frozen=True)
class Hooks:
    """The callbacks of a training, see `train`."""

    on_start: Callable[[str], None] = ignore
    on_step: Callable[[Record], None] = ignore
    on_epoch: Callable[[Record], None] = ignore

    @classmethod
    def given(cls, *callbacks: Callable[..., None] | None) -> Hooks:
        """Return the callbacks, `ignore` for each that is None."""
        return cls(*(ignore if callback is None else callback for callback in callbacks))

    def after(self, epochs: int) -> Hooks:
        """Return callbacks that count on from the epochs trained before."""

        def counted_on(callback: Callable[[Record], None]) -> Callable[[Record], None]:
            return lambda record: callback({**record, "epoch": epochs + record["epoch"]})

        return Hooks(self.on_start, counted_on(self.on_step), counted_on(self.on_epoch))


class Tally:
    """Running sums, on the device, of what steps report.

    A part that only some steps have, as under Alternate, is averaged over those.

    >>> tally = Tally(torch.device("cpu"))
    >>> tally.add(("loss", "clean"), torch.tensor([6.0, 2.0]), count=2)
    >>> tally.add(("loss",), torch.tensor([3.0]), count=1)
    >>> means(tally.totals())
    {'loss': 3.0, 'clean': 1.0}
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._sums: dict[tuple[str, ...], Tensor] = {}

    def add(self, names: tuple[str, ...], sums: Tensor, count: int) -> None:
        """Add sums over `count` images, one for each name, without reading from the device."""
        if names:
            so_far = self._of(names)
            so_far[:-1] += sums
            so_far[-1] += count

    def restore(self, totals: Totals) -> None:
        """Set these totals, in place: a captured step adds to the tensors that it was captured with."""
        for so_far in self._sums.values():
            so_far.zero_()
        for names, sums in totals.items():
            self._of(names).copy_(torch.tensor(sums, dtype=torch.float64))

    def totals(self) -> Totals:
        """Return what has been added so far; waits for the device."""
        totals = {names: so_far.tolist() for names, so_far in self._sums.items()}
        return {names: sums for names, sums in totals.items() if sums[-1]}

    def _of(self, names: tuple[str, ...]) -> Tensor:
        if names not in self._sums:
            self._sums[names] = precise(torch.zeros(len(names) + 1, device=self.device))
        return self._sums[names]


def combine(parts: Sequence[Totals]) -> Totals:
    """Add up several totals, such as those of several processes."""
    totals: Totals = {}
    for part in parts:
        for names, sums in part.items():
            so_far = totals.get(names, [0.0] * len(sums))
            totals[names] = [old + new for old, new in zip(so_far, sums, strict=True)]
    return totals


def means(totals: Totals) -> dict[str, float]:
    """Return the mean over images for each name."""
    whole: dict[str, tuple[float, float]] = {}
    for names, (*values, count) in sorted(totals.items()):  # whatever came first in this process
        for name, added in zip(names, values, strict=True):
            total, images = whole.get(name, (0.0, 0.0))
            whole[name] = total + added, images + count
    return {name: total / images for name, (total, images) in whole.items()}
