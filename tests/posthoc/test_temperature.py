"""Temperature scaling against trying every temperature in a loop."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.metrics.calibration import ece
from regmixup.posthoc import FittedTemperature, TemperatureScaling
from tests.references import metrics as reference


def planted(temperature, count, classes=5, seed=0):
    """Logits T s with labels drawn from softmax(s): dividing by T calibrates them."""
    generator = torch.Generator().manual_seed(seed)
    calm = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(calm.softmax(dim=1), 1, generator=generator).squeeze(1)
    return temperature * calm, labels


@pytest.mark.filterwarnings("ignore:the best temperature")
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40), classes=st.integers(2, 6), scale=st.floats(0.3, 4))
def test_the_search_equals_a_loop_over_the_grid(seed, count, classes, scale):
    logits, labels = planted(scale, count, classes, seed)
    fitted = TemperatureScaling(low=0.25, high=5.0, step=0.25).fit(logits, labels)
    grid = [j / 4 for j in range(1, 21)]
    _, best_value = reference.best_temperature(logits.numpy(), labels.numpy(), grid, reference.ece)
    assert fitted.temperature in grid
    assert fitted.objective == pytest.approx(best_value, abs=1e-10)
    error_there = reference.ece(reference.softmax(logits.numpy() / fitted.temperature), labels.numpy())
    assert error_there == pytest.approx(best_value, abs=1e-10)


def test_a_planted_temperature_is_recovered():
    scaling = TemperatureScaling(low=0.3, high=3.0, step=0.01)
    assert scaling.fit(*planted(1.5, 50_000, seed=1)).temperature == pytest.approx(1.5, abs=0.03)


def test_the_first_of_equal_minima_wins():
    """Equal logits do not change with T, so every temperature ties: the smallest is taken, on the edge of the range."""
    scaling = TemperatureScaling(low=0.5, high=4.0, step=0.5)
    with pytest.warns(UserWarning, match=r"best temperature, 0\.5, lies on the edge of \[0\.5, 4\]"):
        fitted = scaling.fit(torch.zeros(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]))
    assert fitted == FittedTemperature(0.5, 0.0)
    with pytest.warns(UserWarning, match=r"best temperature, 3, lies on the edge of \[1, 3\]"):
        TemperatureScaling(low=1.0, high=3.0, step=0.1).fit(*planted(9.0, 2000))


def test_a_single_temperature_is_no_edge():
    logits, labels = planted(2.0, 100)
    assert TemperatureScaling(low=1.5, high=1.5).fit(logits, labels).temperature == 1.5


def test_huge_logits_do_not_overflow():
    logits, labels = planted(2.0, 200)
    fitted = TemperatureScaling(low=100, high=1e4, step=100).fit(1000 * logits, labels)
    assert math.isfinite(fitted.objective)
    assert 1000 <= fitted.temperature <= 3000


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), r"\(N, K\) and \(N,\), N >= 1, got \(3, 2\), \(2,\)"),
        (torch.tensor([[math.inf, 0.0]]), torch.tensor([0]), "logits must be finite"),
        (torch.tensor([[0.9, 0.1]]), torch.tensor([0]), "logits look like probabilities, .* before the softmax"),
        (torch.zeros(2, 2), torch.tensor([0, 2]), r"labels must lie in \[0, 2\), got values from 0 to 2"),
    ],
)
def test_data_that_cannot_be_fitted_is_refused(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        TemperatureScaling(step=0.1).fit(logits, labels)


def test_a_search_without_bins_is_refused():
    with pytest.raises(ValueError, match="num_bins must be an integer >= 1, got 0"):
        TemperatureScaling(num_bins=0)


def test_a_range_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match=r"high must be a finite number >= 2, got 1\.0"):
        TemperatureScaling(low=2.0, high=1.0)


def recorded(logits):
    """Softmax at a temperature, and the list of temperatures that were asked for."""
    asked = []

    def probs_at(temperature):
        asked.append(temperature)
        return (logits / temperature).softmax(dim=1)

    return probs_at, asked


class TestCoarseToFine:
    """Where probabilities have to be computed anew for each temperature."""

    def test_a_rough_criterion_is_nearly_as_good_as_the_whole_grid(self):
        logits, labels = planted(2.0, 1000)
        probs_at, asked = recorded(logits)
        fitted = TemperatureScaling().fit_predictive(probs_at, labels)
        assert len(asked) == len(set(asked)) <= 145
        assert fitted.objective == pytest.approx(ece((logits / fitted.temperature).softmax(dim=1), labels), abs=1e-12)
        assert -1e-12 < fitted.objective - TemperatureScaling().fit(logits, labels).objective < 0.005

    def test_a_wide_step_is_searched_everywhere(self):
        logits, labels = planted(2.0, 200)
        scaling = TemperatureScaling(low=0.5, high=4.0, step=0.25)
        probs_at, asked = recorded(logits)
        assert scaling.fit_predictive(probs_at, labels).temperature == scaling.fit(logits, labels).temperature
        assert asked == [0.5 + 0.25 * j for j in range(15)]


@pytest.mark.parametrize(("count", "spoiled"), [(20, True), (1000, False)])
def test_a_temperature_that_spoils_the_nll_of_few_images_is_named(count, spoiled, recwarn):
    """Labels are drawn from the softmax of the logits, so T = 1 is right; the ECE of few images says otherwise."""
    generator = torch.Generator().manual_seed(2)
    logits = 3 * torch.randn(count, 5, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    temperature = TemperatureScaling().fit(logits, labels).temperature
    told = [str(warning.message) for warning in recwarn]
    if spoiled:
        assert temperature < 0.2
        assert "makes the NLL of the 20 validation images worse, 0.413 to 1.070" in told[0]
    else:
        assert 0.8 < temperature < 1.25
        assert not told
