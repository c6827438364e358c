"""Figures take any number of methods and sets, and gaps in the data."""

import math

import numpy as np

from regmixup.report import figures

MANY = [f"method {index}" for index in range(12)]


def test_more_methods_than_colours():
    curves = {"fog": {method: [(0.9, 0.01)] * 5 for method in MANY}}
    assert figures.severity_curves(curves).startswith("<svg")
    assert figures.beta_densities(dict.fromkeys(MANY, 2.0)).startswith("<svg")
    scores = {"dnn": {name: np.linspace(0, 1, 50) for name in MANY}}
    assert figures.score_histograms(scores, {"dnn": "entropy"}).startswith("<svg")


def test_a_missing_severity_leaves_a_gap_at_its_place():
    gap = (math.nan, math.nan)
    svg = figures.severity_curves({"fog": {"dnn": [gap, gap, (0.9, 0.0), gap, (0.5, 0.0)]}})
    shifted = figures.severity_curves({"fog": {"dnn": [(0.9, 0.0), (0.5, 0.0), gap, gap, gap]}})
    assert svg != shifted
