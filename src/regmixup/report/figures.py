"""Data of figures: several seeds as one (counts added, curves averaged point by point), and the density of lambda."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import betaincinv, betaln

BINS = 48
"""Bins of a histogram as drawn."""
_MOST_EPOCHS = 120
MASS = 0.8
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Mass of the shaded region of a density of lambda, and the quantiles at which mixed images are shown (Figure 1)."""


def pooled_figures(methods: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Return what comes from predictions, by the position of the method; None for a method without figure data.

    methods: for each the stored data of its runs. Examples are those of the first run.
    """
    return {
        "reliability": [_reliability(runs) if runs else None for runs in methods],
        "scores": [_scores(runs) if runs else None for runs in methods],
        "path": [_path(runs) for runs in methods],
        "images": next((run["images"] for runs in methods for run in runs if "images" in run), []),
        "examples": [runs[0].get("examples") if runs else None for runs in methods],
    }


def _reliability(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    versions = runs[0]["reliability"]
    return {version: pooled_reliability([run["reliability"][version] for run in runs]) for version in versions}


def _scores(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return histogram, ROC and risk-coverage curves, in thousandths, of each score that all seeds have."""
    pooled = {}
    for score, first in runs[0]["scores"].items():
        if all(score in run["scores"] for run in runs):
            curves = [run["scores"][score] for run in runs]
            pooled[score] = {
                "histogram": pooled_histograms(curves),
                "roc": {name: mean_curve([seed["roc"][name] for seed in curves], 1000) for name in first["roc"]},
                "risk": mean_curve([seed["risk"] for seed in curves], 1000, decimals=1),
            }
    return pooled


def _path(runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if not runs or any("path" not in run for run in runs):
        return None
    return pooled_profile([run["path"] for run in runs])


def pooled_histograms(seeds: Sequence[Mapping[str, Any]], num_bins: int = BINS) -> dict[str, Any]:
    """Pool the histograms of one score, in equal bins over the range of all seeds: shares of each set, times 10,000.

    seeds: for each, "range" and "counts" by dataset, as `regmixup.evaluation.curves.score_curves` makes them. The
    samples of a fine bin that crosses a coarse edge are divided between both in proportion.

    >>> fine = {"range": [0.0, 1.0], "counts": {"test": [4, 0, 4, 0]}}
    >>> pooled_histograms([fine, {**fine, "range": [1.0, 2.0]}], num_bins=2)
    {'range': [0.0, 2.0], 'counts': {'test': [5000, 5000]}}
    """
    low, high = min(seed["range"][0] for seed in seeds), max(seed["range"][1] for seed in seeds)
    edges = np.linspace(low, high, num_bins + 1)
    shares = {}
    for dataset in seeds[0]["counts"]:
        total = np.zeros(num_bins)
        for seed in seeds:
            counts = np.asarray(seed["counts"][dataset], dtype=float)
            below = np.concatenate([[0.0], counts.cumsum()])
            first, last = seed["range"]
            total += np.diff(np.interp(edges, np.linspace(first, last, len(counts) + 1), below))
        shares[dataset] = [round(share) for share in 1e4 * total / total.sum()]
    return {"range": [round(low, 4), round(high, 4)], "counts": shares}


def mean_curve(curves: Sequence[Sequence[float]], scale: float = 1.0, decimals: int | None = None) -> list[float]:
    """Return the mean of curves sampled at the same places, times `scale`, rounded, by default to whole numbers.

    >>> mean_curve([[0.1, 0.2], [0.3, 0.4]], scale=1000)
    [200, 300]
    """
    means = scale * np.mean(np.asarray(curves, dtype=float), axis=0)
    return [round(mean, decimals) for mean in means.tolist()]


def pooled_reliability(seeds: Sequence[Mapping[str, Sequence[float | None]]]) -> list[list[float]]:
    """Return (confidence, accuracy, share of samples) of every bin that is not empty, in percent, and the samples.

    >>> bins = {"count": [0, 4], "confidence": [None, 0.8], "accuracy": [None, 0.5]}
    >>> pooled_reliability([bins, {**bins, "count": [0, 12], "confidence": [None, 0.9]}])
    [[87.5, 50.0, 100.0, 16]]
    """
    counts = np.array([seed["count"] for seed in seeds])
    filled = counts.sum(axis=0) > 0
    count = counts.sum(axis=0)[filled]

    def percents(name: str) -> list[float]:
        values = np.array([seed[name] for seed in seeds], dtype=float)  # NaN in empty bins, which have no weight
        return (100 * (np.nansum(counts * values, axis=0)[filled] / count)).tolist()

    shares = (100 * (count / count.sum())).tolist()
    bins = zip(percents("confidence"), percents("accuracy"), shares, count.tolist(), strict=True)
    return [[round(confidence, 2), round(accuracy, 2), round(share, 2), n] for confidence, accuracy, share, n in bins]


def pooled_profile(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Pool entropy profiles: counts (lambda, entropy) added, the mean and the first paths averaged."""
    return {
        "top": round(seeds[0]["top"], 4),
        "counts": np.sum([seed["counts"] for seed in seeds], axis=0).tolist(),
        "mean": mean_curve([seed["mean"] for seed in seeds], decimals=3),
        "pairs": np.round(np.mean([seed["pairs"] for seed in seeds], axis=0), 3).tolist(),
    }


def pooled_history(histories: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, list[list[float]]]:
    """Return, for every quantity that an epoch reports, some epochs, evenly spaced, and the means over seeds there.

    >>> pooled_history([[{"epoch": 1, "loss": 2.0}], [{"epoch": 1, "loss": 1.0}]])
    {'loss': [[1], [1.5]]}
    """
    by_epoch = [{record["epoch"]: record for record in history} for history in histories]
    epochs = sorted(set.intersection(*map(set, by_epoch)))  # one whose record is lost is left out for all seeds
    if not epochs:
        return {}
    places = sorted({round(place) for place in np.linspace(0, len(epochs) - 1, min(_MOST_EPOCHS, len(epochs)))})
    chosen = [epochs[place] for place in places]
    curves = {}
    for name in by_epoch[0][chosen[0]]:
        if name == "epoch" or not all(name in seed[epoch] for seed in by_epoch for epoch in chosen):
            continue
        means = [float(np.mean([seed[epoch][name] for seed in by_epoch])) for epoch in chosen]
        curves[name] = [chosen, [float(f"{mean:.4g}") for mean in means]]  # four significant digits
    return curves


def densest(alpha: float) -> list[list[float]]:
    """Return the smallest intervals that hold MASS of Beta(alpha, alpha).

    With q the (1 - MASS) / 2 quantile it is [q, 1 - q]; for alpha < 1 both ends, up to the MASS / 2 quantile.

    >>> [[round(float(end), 2) for end in interval] for interval in densest(20.0)]
    [[0.4, 0.6]]
    >>> [[round(float(end), 2) for end in interval] for interval in densest(0.3)]
    [[0.0, 0.28], [0.72, 1.0]]
    """
    if alpha < 1:
        end = float(betaincinv(alpha, alpha, MASS / 2))
        return [[0.0, end], [1 - end, 1.0]]
    end = float(betaincinv(alpha, alpha, (1 - MASS) / 2))
    return [[end, 1 - end]]


def density(alpha: float) -> tuple[list[float], list[float]]:
    """Return places in (0, 1) and the density there: lambda^(alpha - 1) (1 - lambda)^(alpha - 1) / B(alpha, alpha)."""
    lam = np.arange(1, 100) / 100
    log = (alpha - 1) * (np.log(lam) + np.log1p(-lam)) - betaln(alpha, alpha)
    return lam.round(4).tolist(), np.exp(log).round(3).tolist()


def mixing_figure(alpha: float) -> dict[str, Any]:
    """Return the figure of one alpha: its density, the densest 80 %, and lambdas at some quantiles."""
    lam, height = density(alpha)
    return {
        "alpha": alpha,
        "lam": lam,
        "density": height,
        "densest": [[round(end, 4) for end in interval] for interval in densest(alpha)],
        "quantiles": [round(float(betaincinv(alpha, alpha, q)), 3) for q in QUANTILES],
    }
