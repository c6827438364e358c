"""The first lines of docs/results.md: what was found, from the same rows as the sections below."""

from collections.abc import Mapping, Sequence

from claims import Training
from make_causes import FRESH, detecting, fresh_lengths, setting
from make_effects import BASE, PLAIN, effect, short
from make_headline import own_length
from make_length import at_lengths, planned_lengths
from make_tables import FIELD, RECIPE, Column, headings, standard_columns

from regmixup.methods import METHODS
from regmixup.report.aggregation import Aggregation, usual_score
from regmixup.types import higher_is_better

OTHERS = {PLAIN: "plain training", "mixup": "Mixup", "half-regmixup": "half-RegMixup"}
"""What RegMixup is compared with on further train sets."""
SEVERAL = 3
"""Fewest seeds of a method that may be called the best."""


def summary(found: Mapping[Training, Aggregation]) -> str:
    """Return what RegMixup does against plain training at every length, and which method is best in what."""
    lengths = {training.epochs: rows for training, rows in at_lengths(found, planned_lengths()).items()}
    columns = standard_columns(RECIPE)
    told = "; ".join(filter(None, (_against_plain(column, head, lengths) for column, head in _named(columns))))
    best = "; ".join(filter(None, (_best(column, head, found) for column, head in _named(columns))))
    lines = []
    if told:
        asked = f"ResNet-18 on CIFAR-10, {min(lengths)} to {max(lengths)} epochs: differences in points"
        side = "and at which lengths the 95 % interval, by itself, lies on one side of 0"
        lines.append(f"- **RegMixup against plain training**, {asked}, {side}. {told[0].upper()}{told[1:]}.")
    for recipe in FIELD[1:]:
        training = own_length(recipe)
        named = _named(standard_columns(recipe))
        detected = [(column, head) for column, head in named if column.quantity.metric == "auroc"]
        by_entropy = [(column._replace(score="entropy"), f"{head} by entropy") for column, head in detected]
        for label, name in OTHERS.items():
            alike = usual_score("auroc", label) == usual_score("auroc", BASE)
            asked = [*(one for one in named if alike or one not in detected), *by_entropy]
            told = _sides(asked, found.get(training, Aggregation([])), label)
            lines += [f"- **RegMixup against {name}**, {training}: {told}."] if told else []
    lines += _why(found, lengths)
    if best:
        rule = f"Of the methods with {SEVERAL} or more seeds at {own_length(RECIPE).epochs} epochs"
        lines.append(f"- **{rule}**, the best means: {best}. [Which differences are decided](#the-headline).")
    return "\n".join(lines) + "\n" if lines else ""


def _why(found: Mapping[Training, Aggregation], lengths: Mapping[int, Aggregation]) -> list[str]:
    """Return what the deficit on the nearest set has to do with the score and with the statistics of batch norm."""
    own, by_msp = detecting()[0], detecting("max_probability")[0]
    told = []
    if lengths and (short_one := effect(rows := lengths[min(lengths)], own, BASE, PLAIN)) and short_one.value < 0:
        other = effect(rows, by_msp, BASE, PLAIN)
        by = f" by Dempster-Shafer, {short(other.value)} by MSP" if other else ""
        told.append(f"after {min(lengths)} epochs RegMixup is {short(short_one.value)} from plain training{by}")
    clean = []
    for epochs in fresh_lengths():
        both = [effect(setting(found, epochs)[1], own, FRESH, reference) for reference in (BASE, PLAIN)]
        if all(one is not None and one.interval is not None for one in both):
            one_pass, plain = (one.cell(decided=False) for one in both if one is not None)
            clean.append(f"after {epochs} epochs {one_pass} to RegMixup in one pass and {plain} to plain training")
    if clean:
        told.append(
            f"with separate passes and batch-norm statistics of clean images the difference is {', '.join(clean)}"
        )
    text = f"- **Where the deficit of short trainings may come from**, {headings([own])[0]}: {'; '.join(told)}."
    return [f"{text} [What that does not say](#whose-batch-norm-statistics)."] if told else []


def _named(columns: Sequence[Column]) -> list[tuple[Column, str]]:
    return list(zip(columns, headings(columns), strict=True))


def _sides(columns: Sequence[tuple[Column, str]], rows: Aggregation, other: str) -> str:
    """Return RegMixup's differences from another method, sorted by the side of 0 that their intervals lie on."""
    sides: dict[str, list[str]] = {"above 0": [], "below 0": [], "undecided": []}
    for column, head in columns:
        one = effect(rows, column, BASE, other)
        if one is not None and one.interval is not None:
            side = "above 0" if one.interval[0] > 0 else "below 0" if one.interval[1] < 0 else "undecided"
            sides[side].append(f"{head} {short(one.value)}")
    return "; ".join(f"{side}: {', '.join(some)}" for side, some in sides.items() if some)


def _against_plain(column: Column, head: str, lengths: Mapping[int, Aggregation]) -> str:
    """Return the smallest and the largest difference over lengths, and where its interval leaves out 0."""
    effects = {epochs: one for epochs, rows in lengths.items() if (one := effect(rows, column, BASE, PLAIN))}
    if not any(one.interval for one in effects.values()):
        return ""
    values = sorted(one.value for one in effects.values())
    sides = {
        side: [epochs for epochs, one in effects.items() if one.interval and above(one.interval)]
        for side, above in (("above 0", lambda i: i[0] > 0), ("below 0", lambda i: i[1] < 0))
    }
    where = [
        f"{side} at {'every length' if len(some) == len(effects) else ', '.join(map(str, some))}"
        for side, some in sides.items()
        if some
    ]
    return f"{head} {short(values[0])} to {short(values[-1])}, {' and '.join(where) or 'undecided at every length'}"


def _best(column: Column, head: str, found: Mapping[Training, Aggregation]) -> str:
    """Return the method with the best mean."""
    rows = found.get(own_length(RECIPE), Aggregation([]))
    own = {label: column.rows(rows, label) for label in METHODS}
    means = {label: sum(row.value for row in some) / len(some) for label, some in own.items() if len(some) >= SEVERAL}
    if not means:
        return ""
    label = (max if higher_is_better(column.quantity.metric) else min)(means, key=means.__getitem__)
    return f"{head} {label} ({column.scale * means[label]:.1f})"
