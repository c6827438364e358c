"""Training on image files and predicting them: `folder:PATH` as train, shifted or OOD set."""

import multiprocessing
import os
import signal
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

import regmixup as rm
from regmixup.training.stopping import Interrupted
from regmixup.training.train import train
from tests.training.short import after_step, assert_same_ending, ending, interrupt

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


def test_a_run_with_workers_interrupted_within_an_epoch_ends_bit_equal_to_one_without(run, tree, tmp_path):
    for steps in (4, 7):
        interrupt(config(tree), tmp_path, after=steps, workers=2)
    assert_same_ending(ending(train(config(tree), tmp_path, workers=2, device="cpu")), ending(run))


def train_until_signalled(settings, runs, number):
    """In a process group of its own, as under a shell or a scheduler: a signal to all of it during the second step."""
    os.setsid()
    multiprocessing.set_start_method("fork", force=True)
    torch.set_num_threads(1)

    def signal_all():
        os.kill(os.getpid(), number) if number == signal.SIGKILL else os.killpg(0, number)
        time.sleep(0.5)  # a worker that died would be noticed now

    with after_step(2, signal_all):
        try:
            train(settings, runs, workers=2, device="cpu")
        except Interrupted as interruption:
            sys.exit(128 + interruption.signal)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_signal_to_the_whole_job_leaves_the_workers_to_their_process(tree, tmp_path, processes, number):
    """Ctrl-C and schedulers signal every process; torch raises an error at any point of the loop if a worker dies.

    After kill -9 of the main process alone, the workers that are left do not keep the folder from the next one.
    """
    settings = config(tree, epochs=1, batch_size=1)
    child = processes.Process(target=train_until_signalled, args=(settings, tmp_path / "cut", number))
    child.start()
    child.join()
    killed = number == signal.SIGKILL
    assert child.exitcode == (-number if killed else 128 + number)
    assert len(list((tmp_path / "cut").glob("*/checkpoint.safetensors"))) == (not killed)
    found, expected = (train(settings, tmp_path / name, workers=0, device="cpu") for name in ("cut", "whole"))
    assert_same_ending(ending(found), ending(expected))


def test_files_of_the_right_size_are_an_ood_set_for_a_model_of_grey_digits(tree, tmp_path):
    digits = rm.train(rm.configure("digits", "dnn", epochs=1), tmp_path, device="cpu")
    with pytest.raises(ValueError, match=r"\.png must have 8x8 pixels"):
        digits.predict(f"folder:{tree}")
    for path in tree.glob("*/*.png"):
        (tmp_path / "small" / path.parent.name).mkdir(parents=True, exist_ok=True)
        Image.open(path).resize((8, 8)).save(tmp_path / "small" / path.parent.name / path.name)
    found = digits.predict(f"folder:{tmp_path / 'small'}")
    assert found.logits.shape == (24, 10)
    assert found.labels.tolist() == [-1] * 24


def test_images_of_another_size_are_refused_with_both_sizes(run):
    with pytest.raises(ValueError, match="digits/test has images of 1x8x8, the run was trained on images of 3x16x16"):
        run.predict("digits/test")
    assert not run.predictions_path("digits/test").exists()


def paint(folder, name, colour, count=4):
    (folder / name).mkdir(parents=True, exist_ok=True)
    for index in range(count):
        Image.new("RGB", (20, 20), colour).save(folder / name / f"{index}.png")


def test_labels_go_by_class_name_and_not_by_position(run, tmp_path):
    paint(tmp_path, "red", RED)
    found = run.predict(f"folder:{tmp_path}")
    assert found.labels.tolist() == [1] * 4
    assert rm.metrics.accuracy(found.logits.softmax(1), found.labels) == 1.0


def test_classes_the_model_never_saw_have_no_label(run, tmp_path):
    for name in ("cyan", "green", "pink"):
        paint(tmp_path, name, (10, 200, 100), count=1)
    assert run.predict(f"folder:{tmp_path}").labels.tolist() == [-1, -1, -1]
    with pytest.raises(ValueError, match=r"labels must lie in .*-1: the class is unknown, or not one of the model's"):
        rm.evaluate(run.predict(f"folder:{tmp_path}"))


def test_predictions_of_a_folder_are_made_anew_when_its_files_change(run, tmp_path):
    paint(tmp_path, "red", RED)
    assert len(run.predict(f"folder:{tmp_path}")) == 4
    paint(tmp_path, "blue", BLUE, count=2)
    assert run.predict(f"folder:{tmp_path}").labels.tolist() == [0, 0, 1, 1, 1, 1]


def test_image_files_refuse_a_padding_that_only_images_in_memory_have(tmp_path):
    paint(tmp_path / "tree", "blue", BLUE)
    with pytest.raises(
        ValueError, match=r"^crop_padding must be 4 for image files, whose crops follow crop_area, got 0$"
    ):
        train(config(tmp_path / "tree", crop_padding=0), tmp_path / "runs", workers=0, device="cpu")


def test_a_train_folder_that_has_changed_is_noticed(tmp_path):
    for name, colour in (("blue", BLUE), ("red", RED)):
        paint(tmp_path / "tree", name, colour)
    settings = config(tmp_path / "tree", epochs=1)
    train(settings, tmp_path / "runs", workers=0, device="cpu")
    paint(tmp_path / "tree", "green", (30, 200, 30))
    with pytest.raises(ValueError, match=r"has changed since .* delete the run folder"):
        train(settings, tmp_path / "runs", workers=0, device="cpu")
