"""The unit in which tables, pages and sentences show a metric. `types.higher_is_better` has the better direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Unit(NamedTuple):
    """A number of this unit is `factor` times the value. name: in words; "" where there is none."""

    name: str
    factor: float

    def write(self, value: float, *, signed: bool = False, digits: int = 3) -> str:
        """Return a value in this unit: with two decimals, or with `digits` where the factor is 1.

        >>> PERCENT.write(0.9512), PERCENT.write(-0.01, signed=True), unit_of("nll").write(0.25, signed=True)
        ('95.12', '−1.00', '+0.250')
        """
        decimals = digits if self.factor == 1 else 2
        return f"{self.factor * value:{'+' if signed else ''}.{decimals}f}".replace("-", "−")


PERCENT = Unit("percent", 100.0)
_THOUSANDTHS, _NATS, _NONE = Unit("thousandths", 1000.0), Unit("nats", 1.0), Unit("", 1.0)
UNITS = {
    "aurc": _THOUSANDTHS,
    "augrc": _THOUSANDTHS,
    "nll": _NATS,
    "brier": _NONE,
    "fisher_criterion": _NONE,
    "temperature": _NONE,
    "prior_variance": _NONE,
}
"""The units of metrics; those that are not listed are fractions, shown in percent."""


def unit_of(metric: str) -> Unit:
    return UNITS.get(metric, PERCENT)


def units_of(metrics: Mapping[str, str]) -> str:
    """Say the units of some metrics, given by title.

    >>> units_of({"accuracy": "accuracy", "AUGRC": "augrc", "T": "temperature"})
    'in percent but for AUGRC (thousandths), T'
    """
    units = {title: unit_of(metric) for title, metric in metrics.items()}
    others = [f"{title} ({unit.name})" if unit.name else title for title, unit in units.items() if unit != PERCENT]
    return f"in percent but for {', '.join(others)}" if others else "in percent"
