"""The quick search against the formula at every temperature: as close as it claims, and the same winner."""

import pytest
import torch

from regmixup.posthoc import temperature_grid
from regmixup.posthoc.temperature_grid import TemperatureSearch
from tests.posthoc.test_temperature import planted


def by_formula(grid):
    """Every value of the grid, from (-log sum_k exp((s_k - max s) / T)) and nothing else."""
    shifted = grid.logits.double() - grid.logits.double().amax(dim=1, keepdim=True)
    log_probs = torch.stack([(shifted / t).log_softmax(dim=1) for t in grid.temperatures])
    if grid.criterion == "nll":
        return -log_probs[:, torch.arange(len(shifted)), grid.labels].mean(dim=1)
    confidence, correct = log_probs.amax(dim=2).exp(), (shifted.argmax(dim=1) == grid.labels).double()
    bins = (confidence[..., None] > torch.arange(1, grid.num_bins) / grid.num_bins).sum(dim=2)
    gap = torch.nn.functional.one_hot(bins, grid.num_bins) * (confidence - correct)[..., None]
    return gap.sum(dim=1).abs().sum(dim=1) / len(shifted)


def steps(low, high, count):
    return torch.linspace(low, high, count, dtype=torch.float64)


@pytest.mark.parametrize("criterion", ["ece", "nll"])
@pytest.mark.parametrize(
    ("scale", "samples", "classes", "num_bins"), [(0.3, 20, 1000, 15), (2.0, 300, 2, 1), (15.0, 200, 10, 40)]
)
def test_every_value_is_as_close_as_claimed(criterion, scale, samples, classes, num_bins):
    logits, labels = planted(scale, samples, classes)
    grid = TemperatureSearch(logits, labels, steps(0.1, 10, 397), criterion, num_bins)
    value, doubt = grid._interpolated()
    expected = by_formula(grid)
    assert (value - expected).abs().max() < 1e-9
    assert ((value - expected).abs() <= doubt).all()
    assert doubt.median() == pytest.approx(1e-9)
    place, smallest = grid.smallest()
    assert place == int(expected.argmin())
    assert smallest == pytest.approx(float(expected.min()), abs=1e-13)


def test_confidences_that_stay_on_an_edge_are_in_doubt_and_computed_again():
    """Equal logits of three classes: 1/3 = 5/15 at every temperature, rounded to either side of the edge."""
    logits, labels = planted(2.0, 200, classes=3)
    logits[:40] = 0.0
    grid = TemperatureSearch(logits, labels, steps(0.5, 5, 91), "ece", 15)
    _, doubt = grid._interpolated()
    assert doubt.min() >= 2 * 40 / 200
    expected = by_formula(grid)
    place, smallest = grid.smallest()
    assert smallest == pytest.approx(float(expected.min()), abs=1e-12)
    assert float(expected[place]) == pytest.approx(smallest, abs=1e-12)


@pytest.mark.parametrize("criterion", ["ece", "nll"])
def test_rounding_does_not_grow_over_many_halvings(criterion):
    """From 0.01 to 10,000 there are twenty; squaring from the top would multiply the error by a million."""
    logits, labels = planted(50.0, 200, classes=10)
    temperatures = torch.logspace(-2, 4, 200, dtype=torch.float64)
    grid = TemperatureSearch(logits, labels, temperatures, criterion, 15)
    assert (grid._interpolated()[0] - by_formula(grid)).abs().max() < 1e-9


def test_pieces_and_threads_join_without_a_seam(monkeypatch):
    logits, labels = planted(2.0, 500, classes=10)
    grid = TemperatureSearch(logits.float(), labels, steps(0.1, 10, 991), "ece", 15)
    whole = grid.smallest()
    monkeypatch.setattr(temperature_grid, "_PIECE", 170)
    monkeypatch.setattr(temperature_grid, "_CHUNK", 3000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert TemperatureSearch(grid.logits, labels, grid.temperatures, "ece", 15).smallest() == whole


@pytest.mark.parametrize("classes", [2, 100, 1000])
def test_the_number_of_nodes_suffices_where_it_is_hardest(classes):
    """One class ahead of all others, which are equal: Z = 1 + (K - 1) exp(-g / T) has its zeros nearest to the real
    line. Among 60 gaps g some put them into every panel."""
    gaps = torch.logspace(-1, 2.5, 60, dtype=torch.float64)
    logits = torch.zeros(60, classes, dtype=torch.float64)
    logits[:, 0] = gaps
    temperatures = steps(0.1, 10, 500)
    nodes = temperature_grid._nodes(10.0, logits)
    norms = temperature_grid._norms(logits, nodes, panels=7)
    exact = 1 / (1 + (classes - 1) * torch.exp(-gaps / temperatures[:, None]))
    for panel, norm in enumerate(norms):
        scaled = temperatures * 2**panel
        inside = (scaled <= 10) & (2 * scaled > 10)
        found = temperature_grid._weights(scaled[inside], nodes) @ norm.reciprocal()
        assert (found - exact[inside]).abs().max() < 1e-10
