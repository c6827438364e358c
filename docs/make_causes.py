"""Causes in docs/results.md: what changes if one choice of RegMixup does. make_results.py calls it."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from regmixup.report.aggregation import Aggregation
from regmixup.report.claims import Training, method_label, prose
from regmixup.report.significance import LEVEL, compare, difference, holm
from regmixup.report.writers import markdown_table
from regmixup.study.plan import load_study

BASE, PLAIN = "regmixup", "dnn"
WORDS = {
    BASE: "the base",
    "regmixup(passes=separate)": "separate forward passes",
    "regmixup(scale=sum)": "the sum of both terms",
    "regmixup(lam=sample)": "a lambda for each image",
}
TEXT = """The base is RegMixup as everywhere else on this page: alpha 20, eta 1, the mean of the two terms, one forward
pass, one lambda for a batch. Each line changes one of these and nothing else; the numbers are differences from the base
in points (AUGRC x 1000), paired by seed where both have the same seeds, with 95 % intervals over seeds. Bold: different
from 0 after Holm's correction over the lines of the column, at 5 %. `(difference)` has too few seeds for an interval,
and decides nothing.
"""


class Effect(NamedTuple):
    """A difference of means, scaled; interval and p over seeds, None with fewer than two seeds of either."""

    value: float
    interval: tuple[float, float] | None
    p: float | None
    runs: tuple[str, ...]

    def cell(self, *, decided: bool) -> str:
        """Return the difference with its interval."""
        if self.interval is None:
            return f"({_signed(self.value)})"
        text = f"{_signed(self.value)} [{_signed(self.interval[0])}, {_signed(self.interval[1])}]"
        return f"**{text}**" if decided else text


def setting(found: Mapping[Training, Aggregation]) -> tuple[Training | None, Aggregation]:
    """Return where the study's runs were trained, and all rows from there, whichever study they belong to."""
    planned = next(iter(load_study("causes").runs()))
    place = (planned.recipe, planned.config.epochs)
    training = next((one for one in found if one.is_usual and (one.recipe, one.epochs) == place), None)
    return training, found[training] if training is not None else Aggregation([])


@cache
def variants() -> tuple[str, ...]:
    """Return the labels that are compared with the base: every choice in turn, then plain training."""
    labels = dict.fromkeys(method_label(planned.label) for planned in load_study("causes").runs())
    return tuple(label for label in labels if label != BASE)


def effect(rows: Aggregation, column: Any, label: str, reference: str) -> Effect | None:
    """Return the difference of a label from the reference; None where one of them was not measured."""
    own, other = column.rows(rows, label), column.rows(rows, reference)
    if not own or not other:
        return None
    values = [{row.seed: column.scale * row.value for row in some} for some in (own, other)]
    measured, tested = difference(*values), compare(*values)
    plain = [sum(some.values()) / len(some) for some in values]
    runs = tuple(dict.fromkeys(row.run for row in own))
    if measured is None or tested is None:
        return Effect(plain[0] - plain[1], None, None, runs)
    return Effect(measured.mean, measured.interval(), tested.p, runs)


def effects(rows: Aggregation, column: Any, reference: str = BASE) -> dict[str, tuple[Effect, bool]]:
    """Return every effect in a column by label, and whether it is different from 0 after the correction."""
    labels = [label for label in (BASE, *variants()) if label != reference]
    found = {label: one for label in labels if (one := effect(rows, column, label, reference)) is not None}
    corrected = holm({label: one.p for label, one in found.items() if one.p is not None})
    return {label: (one, corrected.get(label, 1.0) < LEVEL) for label, one in found.items()}


def section(found: Mapping[Training, Aggregation], columns: Sequence[Any]) -> str:
    """Return the paragraph and the table."""
    training, rows = setting(found)
    measured = [effects(rows, column) for column in columns]
    lines = [_base(rows, columns)]
    for label in variants():
        seeds = len(columns[0].rows(rows, label))
        cells = [own[label][0].cell(decided=own[label][1]) if label in own else "–" for own in measured]
        runs = dict.fromkeys(run for own in measured if label in own for run in own[label][0].runs)
        lines.append([label, str(seeds), *cells, " ".join(f"`{run}`" for run in runs) or "missing"])
    heads = ["", "n", *(column.title for column in columns), "runs"]
    shown = markdown_table(heads, lines).rstrip()
    told = [_answer(rows, column) for column in columns if column.quantity.metric == "auroc"]
    if not any(told):
        told = ["**Not decided**: no variant has two seeds beside two of the base."]
    where = [f"Asked with {training}."] if training is not None else []
    return f"{' '.join([*where, *filter(None, told)])}\n\n{TEXT}\n{shown}\n"


def _base(rows: Aggregation, columns: Sequence[Any]) -> list[str]:
    own = [column.rows(rows, BASE) for column in columns]
    means = [
        f"{column.scale * sum(row.value for row in some) / len(some):.2f}" if some else "–"
        for column, some in zip(columns, own, strict=True)
    ]
    runs = dict.fromkeys(f"`{row.run}`" for some in own for row in some)
    return [f"{BASE}, the base", str(len(own[0])), *means, " ".join(runs) or "missing"]


def _answer(rows: Aggregation, column: Any) -> str:
    """Return which choices move an AUROC, and which are ahead of plain training; "" if nothing can be said."""
    asked = {label: own for label, own in effects(rows, column).items() if label != PLAIN}
    tested = {label: own for label, own in asked.items() if own[0].p is not None}
    if not tested:
        return ""
    moved = [f"{WORDS.get(label, label)} {_signed(one.value)}" for label, (one, decided) in tested.items() if decided]
    ahead = [
        WORDS.get(label, label)
        for label, (one, decided) in effects(rows, column, PLAIN).items()
        if decided and one.value > 0
    ]
    changes = ", ".join(moved) or f"none of {len(tested)} choices has an effect that the seeds can tell from none"
    gain = f"ahead of plain training: {', '.join(ahead)}" if ahead else "nothing is ahead of plain training"
    return f"**{prose(column.title.partition(' ')[0])} AUROC:** {changes}; {gain}."


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
