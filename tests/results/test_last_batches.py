"""The draws of the last batches are those of training, and what decides is what the study's file says."""

import re

import make_last_batches
import pytest
from make_archives import everything
from make_last_batches import Network, by_order, remembered, verdict, weakness, within

import regmixup as rm
from regmixup.study.plan import load_study
from regmixup.types import Row
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


def test_the_p_of_a_correlation_counts_orders():
    """Of 24 orders one is the reverse, and three more swap one pair of neighbours of it."""
    assert by_order([1.0, 2.0, 5.0, 6.0], [9.0, 8.0, 3.0, 1.0]) == pytest.approx(1 / 24)
    assert by_order([1.0, 2.0, 5.0, 6.0], [9.0, 8.0, 1.0, 3.0]) == pytest.approx(4 / 24)
    assert by_order([1.0, 2.0, 5.0, 6.0], [1.0, 2.0, 5.0, 6.0]) == 1


def test_the_cause_is_confirmed_by_both_parts_of_the_criterion():
    mixed, trained = [0.82, 0.84, 0.86, 0.88, 0.9, 0.92], [12.0, 11.0, 8.0, 9.0, 5.0, 4.0]
    steady = [5.0, 5.5, 5.2, 5.1, 5.4, 5.3]
    assert verdict(mixed, trained, steady).startswith("**The cause is confirmed**: over 6 fresh networks")
    for given in ((mixed, trained, [2 * one for one in trained]), (mixed[::-1], trained, steady)):
        assert verdict(*given).startswith("**Half of it is confirmed**")
    assert verdict(mixed[::-1], trained, trained).startswith("**It is not confirmed**")


@pytest.mark.parametrize(
    ("count", "said"), [(0, "not been run yet"), (7, "7 of its 8 networks"), (8, "8 fresh networks")]
)
def test_the_criterion_is_of_all_networks_that_the_study_has(count, said, monkeypatch):
    """Seven of eight decide nothing, whatever they say."""
    mixed = [planned.config for planned in load_study("last-batches").runs() if planned.method == "mixup"]
    configs = list(dict.fromkeys(mixed))
    monkeypatch.setattr(make_last_batches, "networks", lambda *_, batch_norm, **__: given(configs[:count], batch_norm))
    told = make_last_batches.answer([])
    assert said in told
    assert ("**" in told) == (count == 8)
    first = make_last_batches.summary([])
    assert (said in first) == (count > 0)
    assert first.count("**") == (2 if count else 0)
    described = make_last_batches._described([])
    assert ("spreads less, as expected: its standard deviation is" in described) == (count >= make_last_batches.FEWEST)


def given(configs, batch_norm):
    """Networks with an ECE that falls from 8 % on, or is the same for all but the first."""
    eces = [0.08 - 0.01 * (place if batch_norm == "trained" else place > 0) for place in range(len(configs))]
    return [
        Network(config, "mixup", [Row(dataset="cifar10/test", metric="ece", value=ece)])
        for config, ece in zip(configs, eces, strict=True)
    ]


def test_the_figure_has_a_point_for_each_network_inside_its_frame(monkeypatch):
    """Also where fresh networks are far from those that are archived today."""
    archived = everything()
    seen = make_last_batches.networks(archived, rm.Mixup, fresh=False)
    ((config, label, _), *_) = seen
    far = [Network(config, label, [Row(dataset="cifar10/test", metric="ece", value=ece)]) for ece in (0.001, 0.3)]
    for fresh in ([], far):
        monkeypatch.setattr(make_last_batches, "networks", lambda *_, fresh, own=fresh: own if fresh else seen)
        every = [*seen, *fresh]
        circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', make_last_batches.drawn(archived))
        assert len(circles) == len(every) + len({network.config.total_epochs for network in every})
        assert all(50 < float(x) < 380 and 30 < float(y) < 250 for x, y in circles[: len(every)])
