"""Run folders written by the first edition of this package (fixtures/first-edition) stay usable.

They are of one configuration, once trained to its end and once stopped after two of four epochs. Another CPU may round
differently, so numbers are compared to 1e-4.
"""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import regmixup as rm
from regmixup import predictions
from regmixup.training.run import Run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "first-edition"
NAME = "regmixup-digits-train-small-s3-7a08476fdba9"
CONFIG = rm.configure("digits", "regmixup", epochs=4, batch_size=150, seed=3)


@pytest.fixture(params=["finished", "interrupted"])
def runs(request, tmp_path):
    return shutil.copytree(FIXTURES / request.param, tmp_path / request.param)


def assert_same_weights(run):
    expected, found = load_file(FIXTURES / "finished" / NAME / "checkpoint.safetensors"), load_file(run.checkpoint)
    assert {name for name in expected if name in found} == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4, msg=name)


def test_a_configuration_has_the_fingerprint_it_had():
    run = Run.open(FIXTURES / "finished" / NAME)
    assert run.finished
    assert run.config.name == NAME
    assert run.fingerprint == run.provenance()["fingerprint"]


def test_an_old_run_is_resumed_or_counts_as_done_and_ends_with_the_same_weights(runs):
    before = (runs / NAME / "checkpoint.safetensors").read_bytes()
    finished = Run.open(runs / NAME).finished
    epochs = []
    run = rm.train(CONFIG, runs, device="cpu", on_epoch=lambda record: epochs.append(record["epoch"]))
    assert run.folder.name == NAME
    assert epochs == ([] if finished else [3, 4])
    assert ((runs / NAME / "checkpoint.safetensors").read_bytes() == before) == finished
    assert_same_weights(run)


def test_an_old_model_predicts_what_it_predicted(tmp_path):
    shutil.copytree(FIXTURES / "finished", tmp_path, dirs_exist_ok=True)
    run = Run.open(tmp_path / NAME)
    stored = run.predict("digits/test")  # read, as it is there
    run.predictions_path("digits/test").unlink()
    again = run.predict("digits/test", device="cpu")
    for field in ("logits", "features", "labels"):
        torch.testing.assert_close(getattr(again, field), getattr(stored, field), rtol=1e-4, atol=1e-4)
    assert predictions.load(run.predictions_path("digits/test")).dataset == "digits/test"
