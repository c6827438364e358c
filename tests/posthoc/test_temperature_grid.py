"""The quick search against the formula at every temperature: as close as it claims, and the same winner."""

import pytest
import torch

from regmixup.posthoc import temperature_grid
from regmixup.posthoc.temperature_grid import interpolated_ece, smallest_ece
from tests.posthoc.test_temperature import planted


def interpolated(logits, labels, temperatures, num_bins):
    return interpolated_ece(logits, (logits.argmax(dim=1) == labels).double(), temperatures, num_bins)


def by_formula(logits, labels, temperatures, num_bins):
    """The ECE at every temperature, from softmax(s / T) and nothing else."""
    probs = torch.stack([(logits.double() / t).softmax(dim=1) for t in temperatures])
    confidence, correct = probs.amax(dim=2), (logits.argmax(dim=1) == labels).double()
    bins = (confidence[..., None] > torch.arange(1, num_bins, dtype=torch.float64) / num_bins).sum(dim=2)
    gap = torch.nn.functional.one_hot(bins, num_bins) * (confidence - correct)[..., None]
    return gap.sum(dim=1).abs().sum(dim=1) / len(logits)


def steps(low, high, count):
    return torch.linspace(low, high, count, dtype=torch.float64)


@pytest.mark.parametrize(
    ("scale", "samples", "classes", "num_bins"), [(0.3, 20, 1000, 15), (2.0, 300, 2, 1), (15.0, 200, 10, 40)]
)
def test_every_value_is_as_close_as_claimed(scale, samples, classes, num_bins):
    grid = (*planted(scale, samples, classes), steps(0.1, 10, 397), num_bins)
    ece, doubt = interpolated(*grid)
    expected = by_formula(*grid)
    assert (ece - expected).abs().max() < 1e-9
    assert ((ece - expected).abs() <= doubt).all()
    assert doubt.median() == pytest.approx(1e-9)
    place, smallest = smallest_ece(*grid)
    assert place == int(expected.argmin())
    assert smallest == pytest.approx(float(expected.min()), abs=1e-13)


def test_confidences_that_stay_on_an_edge_are_in_doubt_and_computed_again():
    """Equal logits of three classes: 1/3 = 5/15 at every temperature, interpolated to either side of the edge."""
    logits, labels = planted(2.0, 200, classes=3)
    logits[:40] = 0.0
    grid = (logits, labels, steps(0.5, 5, 91), 15)
    assert interpolated(*grid)[1].min() >= 2 * 40 / 200
    expected = by_formula(*grid)
    place, smallest = smallest_ece(*grid)
    assert smallest == pytest.approx(float(expected.min()), abs=1e-12)
    assert float(expected[place]) == pytest.approx(smallest, abs=1e-12)


def test_rounding_does_not_grow_over_many_halvings():
    """From 0.01 to 10,000 there are twenty; squaring from the top would multiply the error by a million."""
    grid = (*planted(50.0, 200, classes=10), torch.logspace(-2, 4, 200, dtype=torch.float64), 15)
    assert (interpolated(*grid)[0] - by_formula(*grid)).abs().max() < 1e-9


def test_pieces_and_threads_join_without_a_seam(monkeypatch):
    logits, labels = planted(2.0, 500, classes=10)
    grid = (logits.float(), labels, steps(0.1, 10, 991), 15)
    whole = smallest_ece(*grid)
    monkeypatch.setattr(temperature_grid, "_PIECE", 170)
    monkeypatch.setattr(temperature_grid, "_CHUNK", 3000)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert smallest_ece(*grid) == whole


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
        confidence = temperature_grid._weights(scaled[inside], nodes) @ norm.reciprocal()
        assert (confidence - exact[inside]).abs().max() < 1e-10
