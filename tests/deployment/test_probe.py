"""The linear probe against scikit-learn, and plans that keep to their time."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from regmixup import networks
from regmixup.data.reading import load_files
from regmixup.deployment import probe
from regmixup.deployment.probe import fit_probe, plan_epochs
from regmixup.losses import balanced_weight
from regmixup.training.config import configure
from regmixup.types import Predictions

from .photos import BACKBONE, write_photos


def features(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    values = torch.randn(count, 6, generator=generator) * torch.tensor([1, 10, 0.1, 1, 1, 1]) + 5
    values[:, 0] += labels
    values = torch.cat([values, torch.full((count, 1), 7.0)], dim=1)
    return Predictions(torch.zeros(count, 3), labels, features=values)


@pytest.mark.parametrize(("decay", "balanced"), [(0.1, False), (1e-3, True)])
def test_the_probe_is_logistic_regression_on_standardised_features(monkeypatch, decay, balanced):
    monkeypatch.setattr(probe, "DECAYS", (decay,))
    train, new = features(80, 0), features(40, 1)
    weight = balanced_weight(train.labels, 3) if balanced else None
    head = fit_probe(train, new, weight)
    mean, std = train.features[:, :-1].mean(0), train.features[:, :-1].std(0, correction=0)
    oracle = LogisticRegression(
        C=1 / (decay * 80), tol=1e-10, max_iter=10_000, class_weight="balanced" if balanced else None
    ).fit(((train.features[:, :-1] - mean) / std).double().numpy(), train.labels.numpy())
    expected = oracle.predict_proba(((new.features[:, :-1] - mean) / std).double().numpy())
    found = (new.features @ head.weight.T + head.bias).softmax(dim=1).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_the_decay_is_chosen_on_validation_images():
    train, new = features(80, 0), features(200, 1)
    chosen = fit_probe(train, new)
    scores = {}
    for decay in probe.DECAYS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(probe, "DECAYS", (decay,))
            scores[decay] = fit_probe(train, new).accuracy
    assert chosen.accuracy == pytest.approx(max(scores.values()), abs=0.006)


@pytest.mark.parametrize(
    ("wanted", "seconds", "planned"),
    [(10, 1000, 10), (10, 118, 10), (10, 117, 9), (10, 59, 5), (10, 58, 0), (3, 36, 3), (3, 35, 0), (10, -5, 0)],
)
def test_as_many_epochs_as_are_wanted_or_fit_and_fewer_than_five_of_more_are_none(wanted, seconds, planned):
    """An epoch takes 10 s, and 85 % of the time are planned for. Of 4,000 images 3 epochs are wanted, of 800 ten."""
    num_train = {3: 4000, 10: 800}[wanted]
    plan = plan_epochs(num_train, pace=10 / num_train, seconds=seconds)
    assert (plan.epochs, plan.wanted) == (planned, wanted)
    assert (f"; fewer than {min(wanted, 5)} would make it worse" in plan.describe(1)) == (planned == 0)


def test_the_pace_is_that_of_decoding_and_the_shortest_step(tmp_path, monkeypatch):
    """Each look at the clock is a second later: decoding and every step take one, for 8 images."""
    write_photos(tmp_path, 4)
    images = load_files(f"folder:{tmp_path}")
    config = configure("imagenet-resnet50", network=BACKBONE, image_size=32, train_set=images.name)
    clock = itertools.count()
    monkeypatch.setattr(probe, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert probe.measure_pace(config, images, torch.device("cpu")) == (1 + 1) / 8
    assert probe.measure_pace(replace(config, sharpness="sam"), images, torch.device("cpu")) == (1 + 2) / 8


@pytest.mark.parametrize(("precision", "convolutions"), [("float32", "ieee"), ("bfloat16", "tf32")])
def test_features_are_computed_in_the_precision_of_the_configuration(tmp_path, precision, convolutions):
    """The setting of CUDA's convolutions can be read on any machine; outside, torch rounds to TF32."""
    images = load_files(f"folder:{write_photos(tmp_path, 1)}")
    config = configure("imagenet-resnet50", network=BACKBONE, image_size=32, precision=precision)
    model, settings = networks.build(BACKBONE, num_classes=3), []
    features = model.features
    model.features = lambda x: settings.append(torch.backends.cudnn.conv.fp32_precision) or features(x)
    probe.predict_files(model, images, config, images.classes)
    assert settings == [convolutions]
