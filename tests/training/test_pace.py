"""The speed that displays and loggers show."""

import pytest

from regmixup.training import pace
from regmixup.training.pace import Pace


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

        def perf_counter(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    return clock


def test_the_first_look_only_starts_the_clock(clock):
    found = Pace(images=1000)
    clock.now += 60  # compilation
    assert found.look(500) == {}
    clock.now += 2
    assert found.look(700) == {"images_per_second": 100.0, "seconds_per_epoch": 10.0}


def test_the_rate_is_that_of_the_last_half_minute(clock):
    """Ten images a second for a minute, then two: half a minute later nothing is left of the first rate."""
    found, seen, rates = Pace(images=100), 0, []
    for second in range(1, 101):
        clock.now += 1
        seen += 10 if second <= 60 else 2
        rates.append(found.look(seen).get("images_per_second"))
    assert rates[59] == pytest.approx(10)
    assert rates[74] == pytest.approx((15 * 10 + 15 * 2) / 30)
    assert rates[89:] == pytest.approx([2] * 11)


def test_looks_far_apart_still_give_a_rate(clock):
    found = Pace(images=100)
    found.look(0)
    for _ in range(3):
        clock.now += 100
        seen = int(clock.now - 100)
        assert found.look(seen)["images_per_second"] == pytest.approx(1.0)


def test_a_look_is_due_after_a_second(clock):
    found = Pace(images=100)
    assert not found.due()
    clock.now += 1
    assert found.due()
    found.look(1)
    assert not found.due()
