"""Predictions of a run: made once, stored, read back. Folders, damage and ranks: see tests/training."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

import regmixup as rm
from regmixup.data.images import ImageSet
from regmixup.predictions import load, save


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


@pytest.mark.parametrize(
    "record", [{"run": "0" * 64}, {"dataset": "digits/val"}, {"precision": "bfloat16"}, {"batch_norm": "refreshed"}]
)
def test_a_file_of_another_run_or_set_is_not_taken_whatever_its_name(run, record):
    """As after a copy by hand: the file's own record decides."""
    path = run.predictions_path("digits/test")
    before = run.predict("digits/test")
    dataset = record.pop("dataset", before.dataset)
    save(replace(before, logits=before.logits + 9, dataset=dataset, info={**before.info, **record}), path)
    assert torch.equal(run.predict("digits/test").logits, before.logits)
    assert load(path).info == before.info


def test_two_folders_whose_names_are_written_alike_have_predictions_of_their_own(run, tmp_path):
    sets = []
    for folder, grey in (("a/b", 0), ("a__b", 255)):
        (tmp_path / folder / "0").mkdir(parents=True)
        Image.new("L", (8, 8), grey).save(tmp_path / folder / "0" / "image.png")
        sets.append(f"folder:{tmp_path / folder}")
    black, white = (run.predict(name).logits for name in sets)
    assert not torch.equal(black, white)
    assert torch.equal(run.predict(sets[0]).logits, black)


def test_what_a_user_registers_is_predicted_again_when_it_changes(run, forget):
    images = rm.data.load("digits/test").images[:20]
    for pixels in (images, images, images.flip(3)):
        rm.data.register("mine/test", lambda: ImageSet(pixels, torch.arange(20) % 2, ("0", "1"), "any"))  # noqa: B023
        rows = run.predict("mine/test")
        assert rows.info["data"] == rm.data.load("mine/test").fingerprint
    stamp = run.predictions_path("mine/test").stat().st_mtime_ns
    run.predict("mine/test")
    assert run.predictions_path("mine/test").stat().st_mtime_ns == stamp


def test_features_are_added_where_they_are_asked_for(run):
    assert run.predict("digits-c/contrast/1", features=False).features is None
    assert run.predict("digits-c/contrast/1", features=True).features is not None


@pytest.mark.parametrize("kind", ["refreshed", "refreshed-augmented", "refreshed-mixed"])
def test_refreshed_predictions_say_so_and_lie_beside_the_others(run, kind):
    other = replace(run, batch_norm=kind)
    plain, refreshed = run.predict("digits/test"), other.predict("digits/test")
    assert refreshed.info["batch_norm"] == f"{kind} on digits/train"
    assert other.predictions_path("digits/test") != run.predictions_path("digits/test")
    assert "batch_norm" not in plain.info
    assert not torch.allclose(plain.logits, refreshed.logits)
