"""Temperature scaling against trying every temperature in a loop."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regmixup.metrics.calibration import ece, nll
from regmixup.posthoc import FittedTemperature, TemperatureScaling
from tests.references import metrics as reference


def planted(temperature, count, classes=5, seed=0):
    """Logits T s with labels drawn from softmax(s): dividing by T calibrates them."""
    generator = torch.Generator().manual_seed(seed)
    calm = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(calm.softmax(dim=1), 1, generator=generator).squeeze(1)
    return temperature * calm, labels


@pytest.mark.filterwarnings("ignore:the best temperature")
@pytest.mark.parametrize("criterion", ["ece", "nll"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40), classes=st.integers(2, 6), scale=st.floats(0.3, 4))
def test_the_search_equals_a_loop_over_the_grid(criterion, seed, count, classes, scale):
    logits, labels = planted(scale, count, classes, seed)
    fitted = TemperatureScaling(criterion=criterion, low=0.25, high=5.0, step=0.25).fit(logits, labels)
    grid = [j / 4 for j in range(1, 21)]
    twin = {"ece": reference.ece, "nll": reference.nll}[criterion]
    _, best_value = reference.best_temperature(logits.numpy(), labels.numpy(), grid, twin)
    assert fitted.temperature in grid
    assert fitted.objective == pytest.approx(best_value, abs=1e-10)
    found = twin(reference.softmax(logits.numpy() / fitted.temperature), labels.numpy())
    assert found == pytest.approx(best_value, abs=1e-10)


@pytest.mark.parametrize(("criterion", "metric"), [("ece", ece), ("nll", nll)])
def test_the_objective_is_the_metric_at_the_chosen_temperature(criterion, metric):
    logits, labels = planted(2.0, 300)
    fitted = TemperatureScaling(criterion=criterion, step=0.05).fit(logits, labels)
    assert fitted.objective == pytest.approx(metric((logits / fitted.temperature).softmax(dim=1), labels), abs=1e-12)
    assert fitted.objective < metric(logits.softmax(dim=1), labels)


@pytest.mark.parametrize("criterion", ["ece", "nll"])
def test_a_search_in_pieces_equals_a_search_at_once(criterion, monkeypatch):
    monkeypatch.setattr("regmixup.posthoc.temperature_grid._CHUNK", 2**14)  # about 5 temperatures at a time
    logits, labels = planted(1.7, 300, classes=10)
    whole = TemperatureScaling(criterion=criterion, low=0.5, high=3.0, step=0.1).fit(logits, labels)
    values = [
        TemperatureScaling(criterion=criterion, low=t, high=t).fit(logits, labels).objective
        for t in np.round(np.arange(5, 31) * 0.1, 9)
    ]
    assert whole.objective == pytest.approx(min(values), abs=1e-12)
    assert whole.temperature == pytest.approx(0.5 + 0.1 * int(np.argmin(values)), abs=1e-9)


@pytest.mark.parametrize("criterion", ["ece", "nll"])
@pytest.mark.parametrize(
    ("count", "tolerance", "temperature"),
    [(5000, 0.1, 0.6), (50_000, 0.03, 1.5)],
)
def test_more_samples_recover_a_planted_temperature_more_closely(criterion, count, tolerance, temperature):
    """By either criterion; the error is relative, so a planted 2.5 may be missed by more."""
    scaling = TemperatureScaling(criterion=criterion, low=0.3, high=3.0, step=0.01)
    assert scaling.fit(*planted(temperature, count, seed=1)).temperature == pytest.approx(temperature, abs=tolerance)


def test_the_first_of_equal_minima_wins():
    """Equal logits do not change with T, so every temperature ties: the smallest is taken, on the edge of the range."""
    scaling = TemperatureScaling(low=0.5, high=4.0, step=0.5)
    with pytest.warns(UserWarning, match="edge"):
        fitted = scaling.fit(torch.zeros(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]))
    assert fitted == FittedTemperature(0.5, 0.0)


@pytest.mark.parametrize(("planted_at", "edge"), [(0.2, "1"), (9.0, "3")])
def test_a_minimum_on_the_edge_of_the_range_warns(planted_at, edge):
    logits, labels = planted(planted_at, 2000)
    with pytest.warns(UserWarning, match=rf"best temperature, {edge}, lies on the edge of \[1, 3\]"):
        TemperatureScaling(criterion="nll", low=1.0, high=3.0, step=0.1).fit(logits, labels)


def test_a_single_temperature_is_no_edge():
    logits, labels = planted(2.0, 100)
    assert TemperatureScaling(low=1.5, high=1.5).fit(logits, labels).temperature == 1.5


@pytest.mark.parametrize("criterion", ["ece", "nll"])
def test_huge_logits_do_not_overflow(criterion):
    logits, labels = planted(2.0, 200)
    fitted = TemperatureScaling(criterion=criterion, low=100, high=1e4, step=100).fit(1000 * logits, labels)
    assert math.isfinite(fitted.objective)
    assert 1000 <= fitted.temperature <= 3000


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(3), torch.zeros(3, dtype=torch.int64), r"\(N, K\) and \(N,\), N >= 1, got \(3,\), \(3,\)"),
        (torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64), r"got \(3, 2\), \(2,\)"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), r"N >= 1, got \(0, 2\), \(0,\)"),
        (torch.tensor([[math.inf, 0.0]]), torch.tensor([0]), "logits must be finite"),
        (torch.zeros(2, 2), torch.tensor([0, 2]), r"labels must lie in \[0, 2\), got values from 0 to 2"),
    ],
)
def test_data_that_cannot_be_fitted_is_refused(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        TemperatureScaling(step=0.1).fit(logits, labels)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"low": 0}, "low must be a finite number > 0, got 0"),
        ({"low": 2.0, "high": 1.0}, "high must be a finite number >= 2, got 1.0"),
        ({"step": 0.0}, "step must be a finite number > 0, got 0.0"),
        ({"num_bins": 0}, "num_bins must be an integer >= 1, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TemperatureScaling(**fields)


def recorded(logits):
    """Softmax at a temperature, and the list of temperatures that were asked for."""
    asked = []

    def probs_at(temperature):
        asked.append(temperature)
        return (logits / temperature).softmax(dim=1)

    return probs_at, asked


class TestCoarseToFine:
    """Where probabilities have to be computed anew for each temperature."""

    @pytest.mark.parametrize("temperature", [0.37, 2.468, 9.2])
    def test_one_valley_is_found_exactly(self, temperature):
        logits, labels = planted(temperature, 400)
        probs_at, asked = recorded(logits)
        found = TemperatureScaling(criterion="nll").fit_predictive(probs_at, labels)
        whole = TemperatureScaling(criterion="nll").fit(logits, labels)
        assert found.temperature == whole.temperature
        assert found.objective == pytest.approx(whole.objective, abs=1e-12)
        assert len(asked) == len(set(asked)) <= 145

    def test_one_valley_of_the_calibration_error(self):
        """Every sample has the same confidence c(T), 7 of 10 are right: ECE is |c(T) - 0.7|, 0 at one temperature."""
        logits = torch.tensor([[4.0, 0.0, 0.0]], dtype=torch.float64).repeat(10, 1)
        labels = torch.tensor([0] * 7 + [1] * 3)
        found = TemperatureScaling().fit_predictive(recorded(logits)[0], labels)
        assert found.temperature == TemperatureScaling().fit(logits, labels).temperature
        assert found.temperature == pytest.approx(4 / math.log(0.7 / 0.15), abs=5e-4)

    def test_a_rough_criterion_is_nearly_as_good_as_the_whole_grid(self):
        logits, labels = planted(2.0, 1000)
        found = TemperatureScaling().fit_predictive(recorded(logits)[0], labels)
        assert found.objective == pytest.approx(ece((logits / found.temperature).softmax(dim=1), labels), abs=1e-12)
        assert -1e-12 < found.objective - TemperatureScaling().fit(logits, labels).objective < 0.005

    def test_a_wide_step_is_searched_everywhere(self):
        logits, labels = planted(2.0, 200)
        scaling = TemperatureScaling(low=0.5, high=4.0, step=0.25)
        probs_at, asked = recorded(logits)
        assert scaling.fit_predictive(probs_at, labels).temperature == scaling.fit(logits, labels).temperature
        assert asked == [0.5 + 0.25 * j for j in range(15)]
