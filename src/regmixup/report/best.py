"""Which numbers of a column are best: found from the numbers as they are printed, never typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Marks(NamedTuple):
    """bold: best single model. underline: best of all, ensembles included; nobody where there is no ensemble."""

    bold: bool = False
    underline: bool = False


def find_best(
    values: Sequence[float | None], ensembles: Sequence[bool], *, higher_is_better: bool | None
) -> list[Marks]:
    """The marks of a column, as the paper defines them ("Table entries", Section 4).

    values: as printed, so that what reads alike is tied and tied cells are all marked; None competes with nobody.
    ensembles: which of them are ensembles. higher_is_better: None for a quantity that has no better side.
    A single value among the single models, or among all, is not best of anything.

    >>> find_best([97.46, 96.14, 97.46], [False] * 3, higher_is_better=True)[2]
    Marks(bold=True, underline=False)
    >>> [m.underline for m in find_best([1.5, 0.9, 0.8], [False, False, True], higher_is_better=False)]
    [False, False, True]
    """
    if higher_is_better is None:
        return [Marks()] * len(values)
    present = [value is not None for value in values]
    single = [there and not ensemble for there, ensemble in zip(present, ensembles, strict=True)]
    bold = _top(values, single, higher_is_better)
    underline = _top(values, present, higher_is_better) if single != present else None
    return [
        Marks(alone and value == bold, there and value == underline)
        for value, there, alone in zip(values, present, single, strict=True)
    ]


def _top(values: Sequence[float | None], competing: Sequence[bool], higher_is_better: bool) -> float | None:
    rivals = [value for value, competes in zip(values, competing, strict=True) if competes and value is not None]
    if len(rivals) < 2:
        return None
    return max(rivals) if higher_is_better else min(rivals)
