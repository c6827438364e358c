"""The linear probe against scikit-learn, and plans that keep to their time."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from regmixup.data.reading import load_files
from regmixup.deployment import probe
from regmixup.deployment.folder import PhotoFolder, Settings
from regmixup.deployment.probe import Features, Pace, fit_probe, make_plan, read_plan, write_plan
from regmixup.losses import balanced_weight
from regmixup.training.config import configure

from .photos import BACKBONE, write_photos


def features(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    values = torch.randn(count, 6, generator=generator) * torch.tensor([1, 10, 0.1, 1, 1, 1]) + 5
    values[:, 0] += labels
    return Features(torch.cat([values, torch.full((count, 1), 7.0)], dim=1), labels)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("decay", [0.1, 1e-3])
def test_the_probe_is_logistic_regression_on_standardised_features(monkeypatch, decay, balanced):
    monkeypatch.setattr(probe, "DECAYS", (decay,))
    train, new = features(80, 0), features(40, 1)
    weight = balanced_weight(train.labels, 3) if balanced else None
    head = fit_probe(train, new, 3, weight)
    mean, std = train.values[:, :-1].mean(0), train.values[:, :-1].std(0, correction=0)
    oracle = LogisticRegression(
        C=1 / (decay * 80), tol=1e-10, max_iter=10_000, class_weight="balanced" if balanced else None
    ).fit(((train.values[:, :-1] - mean) / std).double().numpy(), train.labels.numpy())
    expected = oracle.predict_proba(((new.values[:, :-1] - mean) / std).double().numpy())
    found = (new.values @ head.weight.T + head.bias).softmax(dim=1).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_the_decay_is_chosen_on_validation_images():
    train, new = features(80, 0), features(200, 1)
    chosen = fit_probe(train, new, 3)
    scores = {}
    for decay in probe.DECAYS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(probe, "DECAYS", (decay,))
            scores[decay] = fit_probe(train, new, 3).accuracy
    assert chosen.accuracy == pytest.approx(max(scores.values()), abs=0.006)


def folder(train, others):
    sizes = {"a": train, "b": others, "c": others}
    return PhotoFolder("photos", "a", "b", "c", "", ("x", "y"), (train, others), sizes, side=300)


def plan_of(train, seconds, minutes, **given):
    """seconds: of a training step per image at 224 pixels."""
    asked = []

    def measure(size):
        asked.append(size)
        return Pace(seconds / 8 * (size / 224) ** 2, seconds * (size / 224) ** 2)

    chosen = Settings("timm/resnet18", 224, 10, 32, minutes)
    return make_plan(folder(train, max(1, train // 5)), chosen, measure, **given), asked


def test_a_fast_machine_trains_at_the_native_size_as_long_as_suggested():
    plan, asked = plan_of(1000, 0.01, 10)
    assert (plan.probe_size, plan.size, plan.epochs, asked) == (224, 224, 10, [224])


def test_a_slower_one_at_a_smaller_size_and_the_slowest_not_at_all():
    plan, asked = plan_of(1000, 0.2, 10)
    assert plan.probe_size == 224
    assert plan.size < 224
    assert plan.epochs >= probe.FEWEST_EPOCHS or plan.size == 96
    assert asked[0] == 224
    assert set(asked) == set(plan.paces)
    hopeless, _ = plan_of(100_000, 0.2, 10)
    assert hopeless.epochs == 0
    told = "not one fits in 10 minutes, 15 s of them kept for what is not measured, so the linear probe is the model"
    assert told in hopeless.describe(100_000, 10, given=False)
    short = replace(hopeless, epochs=1).describe(100_000, 1.0, given=False)
    assert "1, what fits in 1 minute (--minutes); 10 would be" in short
    told = replace(hopeless, size=96, probe_size=224).describe(9, 10, given=False)
    assert told.startswith("size         224 pixels (")  # of the probe alone
    assert hopeless.probing(folder(100_000, 20_000)) == pytest.approx(160_000 * hopeless.paces[96].forward)
    for wish in ({"epochs": 0}, {"epochs": 0, "image_size": 64}):
        told = plan_of(1000, 0.01, 10, **wish)[0].describe(1000, 10, given=True)
        assert "epochs       0 (given): the linear probe is the model" in told


@given(st.integers(20, 20_000), st.floats(1e-4, 2), st.floats(0.5, 60))
@settings(max_examples=200, deadline=None)
def test_what_is_planned_fits_in_the_time(train, seconds, minutes):
    plan, _ = plan_of(train, seconds, minutes)
    images = train + 2 * max(1, train // 5)
    cost = train * plan.epochs * plan.paces[plan.size].train
    cost += images * (2 * plan.paces[plan.probe_size].forward + plan.paces[plan.size].forward)
    assert plan.epochs == 0 or cost <= 60 * minutes
    assert plan.epochs <= 10
    assert 96 <= plan.size <= plan.probe_size


def test_given_sizes_and_epochs_are_kept_and_then_nothing_is_measured():
    plan, asked = plan_of(1000, 5.0, 1, epochs=7, image_size=64)
    assert (plan.size, plan.epochs, asked) == (64, 7, [])
    plan, asked = plan_of(1000, 5.0, 1, epochs=7)
    assert plan.epochs == 7
    assert "epochs       7 (given)" in plan.describe(1000, 1, given=True)  # and not that 8,000 / 1,000 images gave them
    assert "epochs       10 (8,000 / 1,000" in plan_of(1000, 1e-4, 10)[0].describe(1000, 10, given=False)
    plan, asked = plan_of(1000, 5.0, 1, image_size=160)
    assert (plan.size, set(asked)) == (160, {160})


@pytest.mark.parametrize(("minutes", "calls"), [(0.5, 2), (10, 3)])
def test_a_step_is_measured_for_a_small_share_of_the_time(minutes, calls, tmp_path, monkeypatch):
    """Each measured call takes a second here: of half a minute, 1.5 s for each of two functions are a tenth."""
    write_photos(tmp_path, 4)
    images = load_files(f"folder:{tmp_path}")
    config = configure("imagenet-resnet50", network=BACKBONE, image_size=32, train_set=images.name)
    clock = itertools.count()
    monkeypatch.setattr(probe, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    pace = probe.measure_pace(config, images, torch.device("cpu"), minutes)
    assert (pace.train, next(clock)) == ((1 + 1) / 8, 2 + 2 * 2 * calls)


def test_a_fixed_architecture_has_one_size():
    asked = []
    chosen = Settings("timm/test_vit", 160, 10, 32, 10)
    plan = make_plan(folder(1000, 100), chosen, lambda size: asked.append(size) or Pace(0.1, 1.0))
    assert (plan.size, plan.probe_size, asked) == (160, 160, [160])


def test_a_plan_is_read_back_and_a_damaged_one_made_again(tmp_path):
    plan, _ = plan_of(1000, 0.2, 10)
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan
    path = tmp_path / "plan.json"
    path.write_text(path.read_text().replace(f'"epochs": {plan.epochs}', '"epochs": 999'))
    assert read_plan(tmp_path) is None
