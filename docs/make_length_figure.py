"""The figure of training length in docs/results.md, as SVG text. make_results.py calls `drawn`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from claims import Training, prose
from make_length import LABELS, at_lengths, planned_lengths
from make_tables import RECIPE, interval, standard_columns

from regmixup.report.aggregation import Aggregation

WIDTH, HEIGHT, LEFT, TOP, ACROSS = 230, 175, 46, 30, 4
"""Size of a panel, its margins, and panels in a row."""
COLOURS = {"dnn": "#2b6cb0", "regmixup": "#c53030", "mixup": "#6b8e23"}
NAMES = {"dnn": "plain training", "regmixup": "RegMixup", "mixup": "Mixup"}


@dataclass(frozen=True)
class Point:
    """One method at one length. low, high: over seeds where n > 1, else over test images."""

    epochs: int
    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Line:
    """A method: its name, whether its batch-norm statistics are refreshed, and its points."""

    method: str
    refreshed: bool
    points: Sequence[Point]


@dataclass(frozen=True)
class Panel:
    """One metric."""

    title: str
    lines: Sequence[Line]


def figure(panels: Sequence[Panel], lengths: Sequence[int]) -> str:
    """Return the figure; the same input gives the same bytes."""
    rows = math.ceil((len(panels) + 1) / ACROSS)
    width, height = ACROSS * WIDTH, rows * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="10">',
        "<title>Metrics against training length</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for index, panel in enumerate(panels):
        parts.append(f'<g transform="translate({WIDTH * (index % ACROSS)},{HEIGHT * (index // ACROSS)})">')
        parts += [*_panel(panel, lengths), "</g>"]
    place = len(panels)
    parts.append(f'<g transform="translate({WIDTH * (place % ACROSS)},{HEIGHT * (place // ACROSS)})">')
    parts += [*_legend(panels), "</g>", "</svg>"]
    return "\n".join(parts) + "\n"


def _panel(panel: Panel, lengths: Sequence[int]) -> list[str]:
    points = [point for line in panel.lines for point in line.points]
    right, bottom = WIDTH - 12, HEIGHT - 24
    parts = [f'<text x="{LEFT}" y="18" font-size="12" font-weight="bold">{panel.title}</text>']
    parts.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#666"/>')
    if not points:
        return [*parts, f'<text x="{LEFT + 8}" y="{TOP + 20}" fill="#666">nothing measured</text>']
    low, high = min(point.value for point in points), max(point.value for point in points)
    room = 0.12 * (high - low) or 1.0
    low, high = low - room, high + room

    def x(epochs: float) -> float:
        first, last = math.log(lengths[0]), math.log(lengths[-1])
        share = (math.log(epochs) - first) / (last - first) if last > first else 0.5
        return LEFT + 14 + share * (right - LEFT - 32)

    def y(value: float) -> float:
        return bottom - (min(max(value, low), high) - low) / (high - low) * (bottom - TOP)

    for epochs in lengths:
        parts.append(f'<text x="{x(epochs):.1f}" y="{bottom + 14}" text-anchor="middle">{epochs}</text>')
    step = _step(high - low)
    for tick in range(math.ceil(low / step), math.floor(high / step) + 1):
        value = tick * step
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{right}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y(value) + 3:.1f}" text-anchor="end">{value:g}</text>')
    for line in panel.lines:
        colour, dash = COLOURS[line.method], ' stroke-dasharray="4 3"' if line.refreshed else ""
        aside = 3 if line.refreshed else 0  # so that two intervals do not cover each other
        path = "L".join(f"{x(point.epochs) + aside:.1f} {y(point.value):.1f}" for point in line.points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
        for point in line.points:
            at = x(point.epochs) + aside
            thin = ' stroke-dasharray="1 2"' if point.n == 1 else ""
            parts.append(f'<path d="M{at:.1f} {y(point.low):.1f}V{y(point.high):.1f}" stroke="{colour}"{thin}/>')
            fill = "white" if line.refreshed else colour
            parts.append(
                f'<circle cx="{at:.1f}" cy="{y(point.value):.1f}" r="3" fill="{fill}" stroke="{colour}"/>'
                f'<text x="{at + 5:.1f}" y="{y(point.value) - 4:.1f}" font-size="8" fill="{colour}">{point.n}</text>'
            )
    return parts


def _step(span: float) -> float:
    """Return a round distance between some 3 to 6 ticks."""
    unit = 10 ** math.floor(math.log10(span / 3))
    return next(factor * unit for factor in (5, 2, 1) if span / (factor * unit) >= 3 or factor == 1)


def _legend(panels: Sequence[Panel]) -> list[str]:
    found = dict.fromkeys((line.method, line.refreshed) for panel in panels for line in panel.lines if line.points)
    parts = []
    for index, (method, refreshed) in enumerate(found):
        at, dash = 24 + 15 * index, ' stroke-dasharray="4 3"' if refreshed else ""
        parts.append(f'<path d="M20 {at}h28" stroke="{COLOURS[method]}" stroke-width="1.6"{dash}/>')
        text = NAMES[method] + (", statistics refreshed" if refreshed else "")
        parts.append(f'<text x="54" y="{at + 4}">{text}</text>')
    notes = (
        "x: epochs; small digits: seeds",
        "AUROC by Dempster-Shafer,",
        "of Mixup by entropy",
        "solid bars: 95 % over seeds",
        "(cut off at the frame)",
        "dotted bars: one seed, test images only",
    )
    start = 30 + 15 * len(found)  # five lines and six notes fit into a panel
    return parts + [f'<text x="20" y="{start + 12 * i}" fill="#444">{note}</text>' for i, note in enumerate(notes)]


def drawn(found: Mapping[Training, Aggregation]) -> str:
    """Return the figure of the columns of the table against the planned lengths."""
    planned, panels = planned_lengths(), []
    for column in standard_columns(RECIPE):
        lines = []
        for label in LABELS:
            points = []
            for training, aggregation in at_lengths(found, planned).items():
                if rows := column.rows(aggregation, label):
                    value = column.scale * mean(row.value for row in rows)
                    points.append(Point(training.epochs, value, *interval(column, rows)))
            lines.append(Line(label.partition("(")[0], "refreshed" in label, points))
        name, _, metric = column.title.partition(" ")
        title = f"{prose(name)} {metric}".strip() + (" x 1000" if column.scale == 1000 else ", %")
        panels.append(Panel(title, [line for line in lines if line.points]))
    return figure(panels, planned)
