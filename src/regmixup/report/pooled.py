"""The figure data of several seeds as one: counts are added, curves are averaged point by point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

BINS = 48
"""Bins of a histogram as it is drawn."""


def pooled_histograms(seeds: Sequence[Mapping[str, Any]], num_bins: int = BINS) -> dict[str, Any]:
    """Histograms of one score, in equal bins over the range of all seeds: shares of each set, times 10,000.

    seeds: for each, "range" and "counts" by dataset, as `regmixup.rows.curves.score_curves` makes them. The
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


def mean_curve(curves: Sequence[Sequence[float]], scale: float = 1.0, decimals: int = 0) -> list[float]:
    """The mean of curves sampled at the same places, times `scale`, in as few digits as asked for.

    >>> mean_curve([[0.1, 0.2], [0.3, 0.4]], scale=1000)
    [200, 300]
    """
    means = scale * np.mean(np.asarray(curves, dtype=float), axis=0)
    return [round(mean, decimals) if decimals else round(mean) for mean in means.tolist()]


def pooled_reliability(seeds: Sequence[Mapping[str, Sequence[float | None]]]) -> list[list[float]]:
    """(confidence, accuracy, share of samples) of every bin that is not empty, in percent.

    >>> bins = {"count": [0, 4], "confidence": [None, 0.8], "accuracy": [None, 0.5]}
    >>> pooled_reliability([bins, {**bins, "count": [0, 12], "confidence": [None, 0.9]}])
    [[87.5, 50.0, 100.0]]
    """
    count = np.array([seed["count"] for seed in seeds], dtype=float)
    total = count.sum()
    found = []
    for index, own in enumerate(count.T):
        if own.sum():
            # Empty bins have no mean, and no weight.
            means = [
                float(sum(n * (seed[name][index] or 0.0) for n, seed in zip(own, seeds, strict=True)) / own.sum())
                for name in ("confidence", "accuracy")
            ]
            found.append([round(100 * value, 2) for value in (*means, float(own.sum() / total))])
    return found


def pooled_profile(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entropy profile: counts (lambda, entropy) added, the mean and the first paths averaged."""
    counts = np.sum([seed["counts"] for seed in seeds], axis=0)
    return {
        "top": round(seeds[0]["top"], 4),
        "counts": counts.tolist(),
        "mean": mean_curve([seed["mean"] for seed in seeds], decimals=3),
        "pairs": np.round(np.mean([seed["pairs"] for seed in seeds], axis=0), 3).tolist(),
    }


def pooled_history(histories: Sequence[Sequence[Mapping[str, Any]]], points: int = 120) -> dict[str, list[list[float]]]:
    """For every quantity that an epoch reports: some epochs, evenly spaced, and the means over seeds there.

    >>> pooled_history([[{"epoch": 1, "loss": 2.0}], [{"epoch": 1, "loss": 1.0}]])
    {'loss': [[1], [1.5]]}
    """
    shortest = min(len(history) for history in histories)
    if shortest == 0:
        return {}
    chosen = sorted({round(index) for index in np.linspace(0, shortest - 1, min(points, shortest))})
    found = {}
    for name in histories[0][0]:
        if name == "epoch" or not all(name in history[index] for history in histories for index in chosen):
            continue
        means = [float(np.mean([history[index][name] for history in histories])) for index in chosen]
        found[name] = [[histories[0][index]["epoch"] for index in chosen], [_significant(mean) for mean in means]]
    return found


def _significant(value: float, digits: int = 4) -> float:
    """Rounded to some digits, however large the number."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else value
