"""Training on image files and predicting them: `folder:PATH` as train, shifted or OOD set."""

import numpy as np
import pytest
import torch
from PIL import Image

import regmixup as rm
from regmixup.training.loop import train

RED, BLUE = (200, 30, 30), (30, 30, 200)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Two classes that a network can tell apart by colour, as image files of different sizes."""
    folder, rng = tmp_path_factory.mktemp("tree"), np.random.default_rng(0)
    for name, colour in (("blue", BLUE), ("red", RED)):
        (folder / name).mkdir()
        for index in range(12):
            noise = rng.integers(-25, 25, (20 + index, 24, 3))
            Image.fromarray((np.array(colour) + noise).astype(np.uint8)).save(folder / name / f"{index}.png")
    return folder


def config(tree, **changes):
    settings = {"train_set": f"folder:{tree}", "epochs": 6, "batch_size": 8, "image_size": 16, "lr": 0.05}
    return rm.configure("digits", "regmixup", mean=(0.5,) * 3, std=(0.25,) * 3, **{**settings, **changes})


@pytest.fixture(scope="module")
def run(tree, tmp_path_factory):
    return train(config(tree), tmp_path_factory.mktemp("runs"), workers=0, device="cpu")


def test_a_network_learns_from_files_and_predicts_them(run, tree):
    found = run.predict(f"folder:{tree}")
    assert rm.metrics.accuracy(found.logits.softmax(1), found.labels) == 1.0
    assert found.labels.tolist() == [0] * 12 + [1] * 12
    assert run.provenance()["input"] == [3, 16, 16]
    assert run.provenance()["classes"] == ["blue", "red"]


def test_workers_do_not_change_the_weights(run, tree, tmp_path):
    helped = train(config(tree), tmp_path, workers=2, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(run.model().parameters(), helped.model().parameters(), strict=True))


def test_an_interrupted_run_on_files_ends_bit_equal(run, tree, tmp_path):
    def stop(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config(tree), tmp_path, workers=0, device="cpu", on_epoch=stop)
    resumed = train(config(tree), tmp_path, workers=0, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(run.model().parameters(), resumed.model().parameters(), strict=True))


def test_files_are_an_ood_set_for_a_model_of_grey_digits(tree, tmp_path):
    digits = rm.train(rm.configure("digits", "dnn", epochs=1), tmp_path, device="cpu")
    found = digits.predict(f"folder:{tree}")
    assert found.logits.shape == (24, 10)
    rows = rm.evaluate(digits.predict("digits/test"), ood=[rm.Predictions(found.logits, found.labels, dataset="tree")])
    assert {row.dataset for row in rows} == {"digits/test", "tree"}


def test_images_of_another_size_are_refused_with_both_sizes(run):
    with pytest.raises(ValueError, match="digits/test has images of 1x8x8, the run was trained on images of 3x16x16"):
        run.predict("digits/test")
    assert not run.predictions_path("digits/test").exists()
