"""Class moments are kept where features are not, and say the same about the Fisher criterion."""

from dataclasses import replace

import pytest
import torch

from regmixup import networks
from regmixup.metrics.fisher import ClassMoments, fisher_criterion
from regmixup.predictions.forward import predict_images as predict
from regmixup.predictions.store import join, load, save

IMAGES = torch.rand(70, 1, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(70) % 4


def model():
    torch.manual_seed(0)
    return networks.build("small", num_classes=4, in_channels=1)


def test_moments_of_batches_are_those_of_the_features():
    found = predict(model(), IMAGES, LABELS, batch_size=16, moments=True)
    expected = ClassMoments.of(found.features, LABELS, 4)
    stored = ClassMoments.stored(found)
    assert stored.count.tolist() == expected.count.tolist()
    torch.testing.assert_close(stored.mean, expected.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stored.scatter, expected.scatter, rtol=1e-9, atol=1e-9)


def test_they_stand_in_for_features_in_a_file_and_in_parts(tmp_path):
    whole = predict(model(), IMAGES, LABELS)
    parts = [
        predict(model(), IMAGES[own], LABELS[own], features=False, moments=True) for own in (slice(30), slice(30, 70))
    ]
    save(join(parts), tmp_path / "p.safetensors")
    stored = load(tmp_path / "p.safetensors")
    assert stored.features is None
    assert stored.class_scatter.dtype == torch.float64
    expected = fisher_criterion(whole.features, LABELS)
    assert ClassMoments.stored(stored).criterion() == pytest.approx(expected, rel=1e-5)


def test_samples_of_unknown_class_are_left_out():
    labels = LABELS.where(LABELS != 3, torch.tensor(-1))
    found = predict(model(), IMAGES, labels, features=False, moments=True)
    assert found.class_count.tolist() == [18, 18, 17, 0]
    known = labels >= 0
    expected = predict(model(), IMAGES[known], labels[known], features=False, moments=True)
    torch.testing.assert_close(found.class_scatter, expected.class_scatter, rtol=1e-6, atol=1e-6)


def test_moments_that_do_not_belong_together_are_refused():
    found = predict(model(), IMAGES, LABELS, features=False, moments=True)
    with pytest.raises(ValueError, match="class_scatter must hold"):
        ClassMoments.stored(replace(found, class_scatter=found.class_scatter[:-1]))
