"""A temperature from elsewhere takes the place of a validation set."""

import pytest
import torch

from regmixup.evaluation.evaluate import evaluate, fit_temperature
from regmixup.posthoc import TemperatureScaling, as_given
from regmixup.types import Predictions


def predicted(name, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(300, 5, generator=generator)
    labels = torch.distributions.Categorical(logits=logits / 2).sample() if seed else logits.argmax(dim=1)
    return Predictions(logits, labels, dataset=name)


@pytest.fixture
def sets():
    torch.manual_seed(0)
    return predicted("toy/test", 1), predicted("toy/val", 2), predicted("toy-c/fog/1", 3)


def test_the_rows_are_those_of_the_validation_set_that_chose_it(sets):
    test, validation, shifted = sets
    temperature = fit_temperature(as_given, validation)
    assert temperature == TemperatureScaling().fit(validation.logits, validation.labels).temperature
    given = evaluate(test, temperature=temperature, shift=[shifted], bootstrap=None)
    assert given == evaluate(test, validation=validation, shift=[shifted], bootstrap=None)


def test_there_is_one_source_of_the_temperature_and_it_is_no_test_set(sets):
    test, validation, _ = sets
    with pytest.raises(ValueError, match=r"temperature must be None where it is chosen on toy/val, got 2\.0"):
        evaluate(test, validation=validation, temperature=2.0)
    with pytest.raises(ValueError, match="toy/test is no validation set"):
        fit_temperature(as_given, test)
