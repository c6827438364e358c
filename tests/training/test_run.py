"""A run: what its folder tells, and damage that is named."""

import dataclasses
import json

import pytest
import torch

import regmixup as rm
from regmixup import run_folder
from regmixup.config import encode
from regmixup.storage import owning, write_json


def test_the_run_folder_tells_what_happened(run):
    record = json.loads((run.folder / "provenance.json").read_text())
    assert record["seed"] == 0
    assert record["fingerprint"] == run.fingerprint
    assert run.folder.name.endswith(run.fingerprint[:12])
    assert record["data"] == {"digits/train": rm.data.load("digits/train").fingerprint}
    assert record["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert record["seconds"] > 0
    assert [r["epoch"] for r in run.history()] == [1, 2]
    assert {"loss", "clean", "mixed", "train_accuracy", "seconds"} <= run.history()[0].keys()
    assert rm.Run.open(run.folder) == run


def test_a_pickle_in_place_of_a_checkpoint_is_refused_and_not_executed(run, tmp_path):
    import pickle

    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    run.checkpoint.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(ValueError, match="cannot use checkpoint"):
        run.model()
    torch.save({"model": Hostile()}, run.checkpoint)
    with pytest.raises(ValueError, match="cannot use checkpoint"):
        run.model()
    assert not (tmp_path / "executed").exists()


def test_a_checkpoint_of_another_configuration_is_refused(run):
    other = dataclasses.replace(run, config=dataclasses.replace(run.config, seed=1))
    with owning(run.folder):
        write_json(run.folder / run_folder.CONFIG, encode(other.config))
    with pytest.raises(ValueError, match="belongs to configuration"):
        other.model()


def test_an_unfinished_run_has_no_model(run):
    (run.folder / "provenance.json").unlink()
    with pytest.raises(ValueError, match="is not finished"):
        run.model()


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(ValueError, match="is not a run folder"):
        rm.Run.open(tmp_path)
