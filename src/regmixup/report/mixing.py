"""How strongly a method mixes: the density of lambda ~ Beta(alpha, alpha) and where most of it lies (Figure 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betaincinv, betaln

MASS = 0.8
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def densest(alpha: float, mass: float = MASS) -> list[list[float]]:
    """The smallest intervals that hold `mass` of Beta(alpha, alpha): at both ends for alpha < 1, else in the middle.

    With q the (1 - mass) / 2 quantile the middle one is [q, 1 - q]; at the ends it is the mass / 2 quantile.

    >>> [[round(float(end), 2) for end in interval] for interval in densest(20.0)]
    [[0.4, 0.6]]
    >>> [[round(float(end), 2) for end in interval] for interval in densest(0.3)]
    [[0.0, 0.28], [0.72, 1.0]]
    """
    if alpha < 1:
        end = float(betaincinv(alpha, alpha, mass / 2))
        return [[0.0, end], [1 - end, 1.0]]
    end = float(betaincinv(alpha, alpha, (1 - mass) / 2))
    return [[end, 1 - end]]


def density(alpha: float, points: int = 99) -> tuple[list[float], list[float]]:
    """Places in (0, 1) and the density there: lambda^(alpha - 1) (1 - lambda)^(alpha - 1) / B(alpha, alpha)."""
    lam = np.arange(1, points + 1) / (points + 1)
    log = (alpha - 1) * (np.log(lam) + np.log1p(-lam)) - betaln(alpha, alpha)
    return lam.round(4).tolist(), np.exp(log).round(3).tolist()


def mixing_figure(alpha: float) -> dict[str, Any]:
    """What the figure of one alpha needs: its density, the densest 80 %, and lambdas at some quantiles."""
    lam, height = density(alpha)
    return {
        "alpha": alpha,
        "lam": lam,
        "density": height,
        "densest": [[round(end, 4) for end in interval] for interval in densest(alpha)],
        "quantiles": [round(float(betaincinv(alpha, alpha, q)), 3) for q in QUANTILES],
    }
