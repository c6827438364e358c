"""Differences between methods: each with its interval, what stands after a correction, and all of them in a figure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from make_tables import Column, headings

from regmixup.names import signed
from regmixup.report.aggregation import Aggregation
from regmixup.report.significance import LEVEL, difference, holm

BASE, PLAIN = "regmixup", "dnn"


class Effect(NamedTuple):
    """A difference of means, scaled; interval and p over seeds, None with fewer than two seeds of either."""

    value: float
    interval: tuple[float, float] | None
    p: float | None
    runs: tuple[str, ...]

    @property
    def told(self) -> str:
        """Return the difference and the seeds behind it."""
        return f"{signed(self.value)} ({len(self.runs)} seeds)"

    def cell(self, *, decided: bool) -> str:
        """Return the difference with its interval."""
        if self.interval is None:
            return f"({signed(self.value)})"
        text = f"{signed(self.value)} [{signed(self.interval[0])}, {signed(self.interval[1])}]"
        return f"**{text}**" if decided else text


def effect(rows: Aggregation, column: Column, label: str, reference: str) -> Effect | None:
    """Return the difference of a label from the reference; None where one of them was not measured."""
    own, other = column.rows(rows, label), column.rows(rows, reference)
    if not own or not other:
        return None
    values = [{row.seed: column.scale * row.value for row in some} for some in (own, other)]
    measured = difference(*values)
    plain = [sum(some.values()) / len(some) for some in values]
    runs = tuple(dict.fromkeys(row.run for row in own))
    if measured is None:
        return Effect(plain[0] - plain[1], None, None, runs)
    return Effect(measured.mean, measured.interval(), measured.p, runs)


def compared(
    rows: Aggregation, column: Column, reference: str, labels: Sequence[str]
) -> dict[str, tuple[Effect, bool]]:
    """Return the differences of labels from the reference; with each, whether it stands after Holm's correction."""
    found = {label: one for label in labels if (one := effect(rows, column, label, reference)) is not None}
    corrected = holm({label: one.p for label, one in found.items() if one.p is not None})
    return {label: (one, corrected.get(label, 1.0) < LEVEL) for label, one in found.items()}


# ---- the figure

LEFT, ACROSS, DOWN, TOP = 250, 125, 19, 44
"""Width of the names, of a panel, height of a line, and of what is above the first."""
NOTE = (
    "Difference from plain training in points (AUGRC x 1000), with 95 % intervals over seeds, each by itself, cut off "
    "at the frame; grey: one seed.",
    "ECE and AUGRC are better when lower. AUROC is filled by the method's own score, and hollow by MSP.",
)


def figure(rows: Aggregation, columns: Sequence[Column], names: Mapping[str, str], title: str) -> str:
    """Return the differences of labels from plain training, a panel per column, as SVG text.

    Detection is drawn by each method's own score, and hollow by MSP. names: of the labels, in their order.
    """
    labels = [label for label in names if label != PLAIN and columns[0].rows(rows, label)]
    width, bottom = LEFT + ACROSS * len(columns) + 10, TOP + DOWN * len(labels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 54}" width="{width}" '
        f'height="{bottom + 54}" font-family="sans-serif" font-size="10">',
        f"<title>{title}</title>",
        f'<rect width="{width}" height="{bottom + 54}" fill="white"/>',
    ]
    for line, label in enumerate(labels):
        weight = ' font-weight="bold"' if label == BASE else ""
        parts.append(f'<text x="{LEFT - 8}" y="{_y(line) + 3}" text-anchor="end"{weight}>{names[label]}</text>')
    for place, (column, head) in enumerate(zip(columns, headings(columns), strict=True)):
        parts.append(f'<g transform="translate({LEFT + place * ACROSS},0)">')
        parts += [*_panel(rows, column, head, labels, bottom), "</g>"]
    for line, text in enumerate(NOTE):
        parts.append(f'<text x="12" y="{bottom + 32 + 13 * line}" fill="#444">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(rows: Aggregation, column: Column, head: str, labels: Sequence[str], bottom: int) -> list[str]:
    scores = ("", "max_probability") if column.quantity.metric == "auroc" else ("",)
    drawn = [
        (line, bool(score), one)
        for line, label in enumerate(labels)
        for score in scores
        if (one := effect(rows, column._replace(score=score), label, PLAIN)) is not None
    ]
    values = [0.0, *(one.value for _, _, one in drawn)]
    room = 0.2 * (max(values) - min(values)) or 1.0
    low, high = min(values) - room, max(values) + room

    def x(value: float) -> float:
        return 6 + (min(max(value, low), high) - low) / (high - low) * (ACROSS - 12)

    title, _, rest = head.rpartition(" ") if len(head) > 14 else (head, "", "")
    parts = [
        f'<text x="{ACROSS / 2}" y="{16 + 12 * i}" text-anchor="middle" font-weight="bold">{text}</text>'
        for i, text in enumerate((title, rest))
    ]
    parts.append(f'<rect x="6" y="{TOP}" width="{ACROSS - 12}" height="{bottom - TOP}" fill="none" stroke="#ccc"/>')
    parts.append(f'<path d="M{x(0):.1f} {TOP}V{bottom}" stroke="#2b6cb0"/>')
    for value in sorted({min(values), 0.0, max(values)}):
        if value == 0 or abs(x(value) - x(0)) > 18:
            parts.append(f'<text x="{x(value):.1f}" y="{bottom + 13}" text-anchor="middle">{short(value)}</text>')
    for line, hollow, one in drawn:
        at = _y(line) + (4 if hollow else -2 if len(scores) > 1 else 0)
        colour = "#c53030" if one.interval is not None else "#999"
        if one.interval is not None:
            ends = f"M{x(one.interval[0]):.1f} {at}H{x(one.interval[1]):.1f}"
            parts.append(f'<path d="{ends}" stroke="{colour}"/>')
        fill = "white" if hollow else colour
        parts.append(f'<circle cx="{x(one.value):.1f}" cy="{at}" r="2.6" fill="{fill}" stroke="{colour}"/>')
    return parts


def _y(line: int) -> int:
    return TOP + DOWN * line + DOWN // 2


def short(value: float) -> str:
    """Return a signed number with one digit."""
    return signed(value, 1) if value else "0"
