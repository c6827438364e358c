"""The draws of the last batches are those of training, and what decides is what the study's file says."""

import re

import make_last_batches
import pytest
from make_archives import everything
from make_last_batches import remembered, verdict, weakness, within

import regmixup as rm
from tests.training.short import config


@pytest.mark.parametrize(("earlier", "used"), [(0, 5), (2, 3)])
def test_the_draws_of_training_are_repeated(earlier, used, tmp_path, monkeypatch):
    """450 digits in batches of 100, of which the last has 50; 5 batches of the second epoch, the last weighs most."""
    own, seen = config("mixup", epochs=2, batch_size=100), []
    compute = rm.Mixup.compute

    def watched(self, model, x, y, draw):
        seen.append(draw)
        return compute(self, model, x, y, draw)

    monkeypatch.setattr(rm.Mixup, "compute", watched)
    rm.train(own, tmp_path, device="cpu")
    for name, value in (("IMAGES", 450), ("SIZE", (8, 8)), ("REMEMBERED", used)):
        monkeypatch.setattr(make_last_batches, name, value)
    last = [weakness(draw) for draw in seen[-5:][:used]]
    weights = [0.9**back for back in reversed(range(used))]
    expected = sum(w * value for w, value in zip(weights, last, strict=True)) / sum(weights)
    assert remembered(own, weakness, earlier=earlier) == pytest.approx(expected, rel=1e-12)
    assert remembered(own, lambda draw: 1.0) == pytest.approx(1)


def test_values_are_compared_within_their_length():
    assert within([1.0, 3.0, 10.0, 14.0], [25, 25, 50, 50]) == [-1, 1, -2, 2]


def test_the_cause_is_confirmed_by_both_parts_of_the_criterion():
    mixed, trained = [0.82, 0.84, 0.86, 0.88, 0.9, 0.92], [12.0, 11.0, 8.0, 9.0, 5.0, 4.0]
    steady = [5.0, 5.5, 5.2, 5.1, 5.4, 5.3]
    assert verdict(mixed, trained, steady).startswith("**The cause is confirmed**: over 6 fresh networks")
    for given in ((mixed, trained, [2 * one for one in trained]), (mixed[::-1], trained, steady)):
        assert verdict(*given).startswith("**Half of it is confirmed**")
    assert verdict(mixed[::-1], trained, trained).startswith("**It is not confirmed**")


def test_the_figure_has_a_point_for_each_network_inside_its_frame():
    archived = everything()
    every = [one for fresh in (False, True) for one in make_last_batches.networks(archived, rm.Mixup, fresh=fresh)]
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', make_last_batches.drawn(archived))
    assert len(circles) == len(every) + len({network.config.total_epochs for network in every})
    assert all(50 < float(x) < 380 and 30 < float(y) < 250 for x, y in circles[: len(every)])
