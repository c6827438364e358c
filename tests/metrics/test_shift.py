"""The mean corruption error by hand, and what it refuses."""

import pytest

from regmixup.metrics.shift import mean_corruption_error

REFERENCE = {("fog", 1): 0.2, ("fog", 2): 0.6, ("snow", 1): 0.5, ("snow", 2): 0.5}


def test_severities_are_summed_before_the_ratio_is_taken():
    """Fog: (0.1 + 0.1) / 0.8 = 1/4, where the mean of the ratios would be 1/3. Snow: 1.5 / 1. Mean: 7/8."""
    errors = {("fog", 1): 0.1, ("fog", 2): 0.1, ("snow", 1): 0.75, ("snow", 2): 0.75}
    assert mean_corruption_error(errors, REFERENCE) == pytest.approx(7 / 8)
    assert mean_corruption_error(REFERENCE, REFERENCE) == 1


@pytest.mark.parametrize(
    ("errors", "reference", "message"),
    [
        ({("fog", 1): 0.1}, REFERENCE, r"same conditions, .* only one has \[\('fog', 2\), \('snow', 1\)"),
        ({}, {}, "at least one"),
        ({("fog", 1): 0.1}, {("fog", 1): 0.0}, "got none under 'fog'"),
    ],
)
def test_conditions_that_do_not_match_are_refused(errors, reference, message):
    with pytest.raises(ValueError, match=message):
        mean_corruption_error(errors, reference)
