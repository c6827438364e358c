"""What the standard table of docs/results.md decides, method by method. make_results.py calls `answer`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regmixup.methods import METHODS
from regmixup.names import signed
from regmixup.report.aggregation import Aggregation
from regmixup.report.significance import LEVEL
from regmixup.types import higher_is_better

PLAIN, BASE = "dnn", "regmixup"
CHEAP = ("half-regmixup", "bimodal")
AGAINST_PLAIN = """What is decided against plain training, for methods with several seeds, each by its own score:
differences in points (AUGRC x 1000) that are not 0 after Holm's correction over the methods of a column, at 5 %;
columns are not corrected for each other. What is not named was not told apart.
"""
AGAINST_BASE = """Half-RegMixup and bimodal cost as much as plain training, and should come close to RegMixup. Against
RegMixup:
"""

Compared = Callable[[Aggregation, Any, str, Sequence[str]], Mapping[str, tuple[Any, bool]]]


def answer(rows: Aggregation, columns: Sequence[Any], heads: Sequence[str], compared: Compared) -> str:
    """Return a line for each method against plain training, and for those at its cost against RegMixup.

    compared: gives the effects in a column by label, and whether each stands after the correction.
    """
    several = [label for label in METHODS if label != PLAIN and len(columns[0].rows(rows, label)) > 1]
    parts = []
    for text, reference, labels in (
        (AGAINST_PLAIN, PLAIN, several),
        (AGAINST_BASE, BASE, [label for label in several if label in CHEAP]),
    ):
        found = [compared(rows, column, reference, labels) for column in columns]
        lines = [_told(label, columns, heads, found) for label in labels if label in found[0]]
        if lines and found[0][labels[0]][0].interval is not None:
            parts += [text, "\n".join(lines) + "\n"]
    return "\n".join(parts)


def _told(
    label: str, columns: Sequence[Any], heads: Sequence[str], found: Sequence[Mapping[str, tuple[Any, bool]]]
) -> str:
    """Return in what a method is better and worse than the reference, and what only the interval by itself shows."""
    kinds: dict[str, list[str]] = {"better in": [], "worse in": [], "before the correction only": []}
    seeds = 0
    for column, head, effects in zip(columns, heads, found, strict=True):
        if label not in effects or effects[label][0].p is None:
            continue
        effect, decided = effects[label]
        seeds = max(seeds, len(effect.runs))
        better = (effect.value > 0) == higher_is_better(column.quantity.metric)
        kind = ("better in" if better else "worse in") if decided else "before the correction only"
        if decided or effect.p < LEVEL:
            kinds[kind].append(f"{head} {signed(effect.value)}")
    told = "; ".join(f"{kind} {', '.join(some)}" for kind, some in kinds.items() if some)
    return f"- **{label}** ({seeds} seeds): {told or 'nothing is told apart'}."
