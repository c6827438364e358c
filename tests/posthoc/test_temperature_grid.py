"""The search by bounds against the formula at every temperature: the same winner, and bounds that hold."""

import pytest
import torch

from regmixup.posthoc import temperature_grid
from regmixup.posthoc.temperature_grid import confidence_at, least_ece, smallest_ece
from tests.posthoc.test_temperature import planted


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
    ("scale", "samples", "classes", "num_bins"),
    [(0.3, 20, 1000, 15), (2.0, 300, 2, 1), (15.0, 200, 10, 40), (1.0, 7, 3, 15), (50.0, 200, 10, 15)],
)
def test_the_winner_is_that_of_trying_every_temperature(scale, samples, classes, num_bins):
    grid = (*planted(scale, samples, classes), steps(0.1, 10, 397), num_bins)
    expected = by_formula(*grid)
    place, smallest = smallest_ece(*grid)
    assert place == int(expected.argmin())
    assert smallest == pytest.approx(float(expected.min()), abs=1e-13)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_grid_of_few_temperatures(count):
    grid = (*planted(2.0, 50, 5), steps(0.5, 3, count), 15)
    assert smallest_ece(*grid)[0] == int(by_formula(*grid).argmin())


def test_equal_minima_give_the_first_temperature():
    """Of logits that are 0 the confidence is 1/4 at every temperature."""
    assert smallest_ece(torch.zeros(4, 4), torch.arange(4), steps(0.1, 10, 100), 15) == (0, 0.0)


@pytest.mark.parametrize("classes", [2, 10])
def test_a_bound_is_below_every_ece_in_its_interval_and_close_for_a_short_one(classes):
    logits, labels = planted(3.0, 100, classes)
    correct = (logits.argmax(dim=1) == labels).double()
    temperatures = steps(0.2, 6, 60)
    confidence = torch.stack([confidence_at(logits, float(t)) for t in temperatures])
    ece = by_formula(logits, labels, temperatures, 15)
    bounds = {}
    for width in (0, 2, 20):
        pairs = zip(confidence, confidence[width:], strict=False)
        bounds[width] = torch.tensor([least_ece(*pair, correct, 15) for pair in pairs], dtype=torch.float64)
        least = ece.unfold(0, width + 1, 1).amin(dim=1)
        assert (bounds[width] <= least + 1e-12).all()
    torch.testing.assert_close(bounds[0], ece, atol=1e-12, rtol=0)
    assert (bounds[2] >= bounds[20].max()).any()


def test_few_temperatures_are_evaluated_and_pieces_join_without_a_seam(monkeypatch):
    logits, labels = planted(2.0, 500, classes=10)
    grid = (logits.float(), labels, steps(0.1, 10, 9901), 15)
    whole, evaluated = smallest_ece(*grid), []

    def recorded(logits, temperature):
        evaluated.append(temperature)
        return confidence_at(logits, temperature)

    monkeypatch.setattr(temperature_grid, "_PIECE", 170)
    monkeypatch.setattr(temperature_grid, "confidence_at", recorded)
    assert smallest_ece(*grid) == whole
    assert len(evaluated) < 400
