"""Predictions of a run: made once, stored, read back. Folders, damage and ranks: see tests/training."""

import torch

import regmixup as rm


def test_predictions_are_made_once_and_stored(run):
    first = run.predict("digits/test")
    path = run.predictions_path("digits/test")
    stamp = path.stat().st_mtime_ns
    assert torch.equal(run.predict("digits/test").logits, first.logits)
    assert path.stat().st_mtime_ns == stamp
    assert first.info["data"] == rm.data.load("digits/test").fingerprint
    assert torch.allclose(first.features @ first.head_weight.T + first.head_bias, first.logits, atol=1e-5)


def test_features_of_shifted_sets_are_not_stored(run):
    assert run.predict("digits-c/contrast/1").features is None
    assert run.predict("digits/test").features is not None
