"""A checkpoint is whole or refused, and what was saved stays saved."""

import errno
import json
import os
import re
import shutil
import stat
import struct
from types import SimpleNamespace

import pytest
import torch

import regmixup as rm
from regmixup import data, storage
from regmixup.training.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    Position,
    SaveSchedule,
    read_checkpoint,
    save_checkpoint,
)
from regmixup.training.loop import Training
from tests.failing import unreadable
from tests.training import short
from tests.training.short import EVERY_STEP, STEPS, assert_same_ending, config, ending, interrupt, load_few, same_bits

pytestmark = pytest.mark.usefixtures("few_digits")

CONTENT = Checkpoint(
    {
        "model.weight": torch.tensor([[1.5, -0.0], [float("nan"), 3.0]]),
        "model.count": torch.tensor(7),
        "model.half": torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
        "optimizer.0.momentum_buffer": torch.linspace(0, 1, 5, dtype=torch.float64),
    },
    Position(2, 3, {("loss", "clean"): [0.1 + 0.2, 1e-300, 48.0], ("loss",): [5.0, 16.0]}, 1.25),
    "d" * 64,
)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Where the run of these tests ends if nothing happens to it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(data, "load", load_few)
        return ending(rm.train(config(), tmp_path_factory.mktemp("undisturbed"), device="cpu"))


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """The folder of that run, interrupted in its second epoch."""
    runs = tmp_path_factory.mktemp("cut")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(data, "load", load_few)
        interrupt(config(), runs, after=STEPS + 2, engine=EVERY_STEP)
    return next(runs.iterdir())


def copied(cut, tmp_path):
    return shutil.copytree(cut, tmp_path / cut.name)


def resumed(tmp_path):
    return ending(rm.train(config(), tmp_path, device="cpu"))


def test_everything_comes_back_bit_for_bit(tmp_path):
    for earlier in (Checkpoint({}, Position(), "d"), CONTENT):
        save_checkpoint(tmp_path, earlier, fingerprint="f")
    found = read_checkpoint(tmp_path / CHECKPOINT, fingerprint="f")
    assert (found.position, found.data) == (CONTENT.position, CONTENT.data)
    assert found.tensors.keys() == CONTENT.tensors.keys()
    assert all(same_bits(found.tensors[name], tensor) for name, tensor in CONTENT.tensors.items())
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]


FROZEN = {"freeze": 1, **short.FINE_TUNING}
SHARP = {"sharpness": "friendly", "average": "swa", "average_from": 0.3}
SELECTED = {"select": "val-nll", **short.UNSTEADY}


@pytest.mark.parametrize(
    ("changes", "steps", "kept"),
    [
        pytest.param(FROZEN, 2, {"ema.updates"}, id="while frozen"),
        pytest.param(FROZEN, STEPS, {"ema.updates"}, id="at the thaw"),
        pytest.param(SHARP, 2, {"sharpness.updates"}, id="before the mean begins"),
        pytest.param(SHARP, 2 * STEPS + 1, {"sharpness.updates", "swa.epochs"}, id="while it is taken"),
        pytest.param(SELECTED, STEPS, {"best.selected_epoch"}, id="at the end of an epoch"),
        pytest.param({**SELECTED, "ema": 0.8}, 2 * STEPS + 1, {"best.selected_value"}, id="after the best"),
    ],
)
def test_resuming_anywhere_ends_with_the_same_bits(tmp_path, changes, steps, kept):
    settings = config(**changes)
    whole = rm.train(settings, tmp_path / "whole", device="cpu")
    interrupt(settings, tmp_path / "cut", after=steps)
    resumed = rm.train(settings, tmp_path / "cut", device="cpu")
    assert_same_ending(ending(resumed), ending(whole))
    assert kept <= short.tensors_of(resumed, "").keys()
    assert resumed.provenance().get("selected") == whole.provenance().get("selected")


def test_no_byte_can_change_unnoticed(tmp_path):
    """Every byte of the file, header and position included: refused, or read as the same content all the same."""
    path = tmp_path / CHECKPOINT
    save_checkpoint(tmp_path, CONTENT, fingerprint="f")
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    unnoticed = []
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0x10]) + whole[index + 1 :])
        try:
            found = read_checkpoint(path, fingerprint="f")
        except ValueError as error:
            assert re.match(r"cannot use checkpoint .*checkpoint\.safetensors: ", str(error))  # noqa: PT017
        else:
            unnoticed.append(index)
            assert (found.position, found.data) == (CONTENT.position, CONTENT.data)
            assert all(same_bits(found.tensors[name], tensor) for name, tensor in CONTENT.tensors.items())
    assert all(index < header for index in unnoticed)


@pytest.mark.parametrize("lost", ["epoch", "step", "totals", "seconds", "position", "data"])
def test_one_without_its_place_is_damaged(tmp_path, lost):
    """Training would else begin again with the first epoch, from weights of a later one."""
    save_checkpoint(tmp_path, CONTENT, fingerprint="f")
    tensors, metadata = storage.load_tensors(tmp_path / CHECKPOINT)
    position = json.loads(metadata["position"])
    position.pop(lost, None)
    metadata["position"] = json.dumps(position)
    metadata.pop(lost, None)
    storage.save_tensors(tmp_path / CHECKPOINT, tensors, metadata)
    with pytest.raises(ValueError, match=rf"checkpoint\.safetensors: it is damaged, as it has no '{lost}'\. Delete it"):
        read_checkpoint(tmp_path / CHECKPOINT, fingerprint="f", whole=False)


@pytest.mark.parametrize("share", [0, 0.001, 0.5])
def test_a_damaged_one_is_named_with_the_way_out_and_training_begins_again_without_it(cut, tmp_path, expected, share):
    path = copied(cut, tmp_path) / CHECKPOINT
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=rf"cannot use checkpoint {path}: .* Delete it to train this run again"):
        resumed(tmp_path)
    path.unlink()
    assert_same_ending(resumed(tmp_path), expected)


def test_one_that_cannot_be_read_now_is_not_passed_over(cut, tmp_path, expected):
    with unreadable(copied(cut, tmp_path) / CHECKPOINT) as error, pytest.raises(OSError, match=error):
        resumed(tmp_path)
    assert_same_ending(resumed(tmp_path), expected)


def test_a_run_trained_again_is_not_finished_before_its_end(tmp_path, expected):
    """Its record of the first time is there, and from the first save on a checkpoint."""
    run = rm.train(config(), tmp_path, device="cpu")
    run.checkpoint.unlink()
    interrupt(config(), tmp_path, after=2)
    assert run.checkpoint.exists()
    assert not run.finished
    assert_same_ending(resumed(tmp_path), expected)


def test_a_save_that_fails_loses_nothing(cut, tmp_path, expected, monkeypatch):
    """The first save of a resumed run fails, as on a full disk: what was saved before is there, and a run goes on."""
    folder = copied(cut, tmp_path)
    before = read_checkpoint(folder / CHECKPOINT, fingerprint=rm.Run.open(folder).fingerprint).position

    def fsync(number):
        at = os.fstat(number)
        if stat.S_ISREG(at.st_mode) and at.st_size > 1000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(storage.os, "fsync", fsync)
        with pytest.raises(OSError, match="No space left on device"):
            rm.train(config(), tmp_path, device="cpu", engine=EVERY_STEP)
    found = read_checkpoint(folder / CHECKPOINT, fingerprint=rm.Run.open(folder).fingerprint).position
    assert (found.epoch, found.step) == (before.epoch, before.step)
    assert not list(folder.glob(".partial-*"))
    assert_same_ending(resumed(tmp_path), expected)


class TestSchedule:
    def test_by_the_clock_since_the_last_one(self, monkeypatch):
        now = 100.0
        monkeypatch.setattr("regmixup.training.checkpoint.time.monotonic", lambda: now)
        schedule = SaveSchedule(minutes=2)
        now = 219.0
        assert not schedule.due_after_step()
        now = 220.0
        assert schedule.due_after_step()
        schedule.saved(begun=210.0)
        now = 339.0
        assert not schedule.due_after_step()
        assert not schedule.due_after_epoch()
        now = 340.0
        assert schedule.due_after_epoch()

    def test_after_an_epoch_that_took_a_hundred_times_as_long_as_saving(self, monkeypatch):
        now = 0.0
        monkeypatch.setattr("regmixup.training.checkpoint.time.monotonic", lambda: now)
        schedule = SaveSchedule(minutes=60)
        assert schedule.due_after_epoch(), "what saving costs is not known yet"
        now = 2.0
        schedule.saved(begun=1.5)
        now = 51.9
        assert not schedule.due_after_epoch()
        now = 52.0
        assert schedule.due_after_epoch()

    def test_processes_that_write_nothing_know_what_saving_costs(self, monkeypatch):
        """Else each of them would ask for a checkpoint after every epoch, and all would agree."""
        now = 0.0

        def wait():
            nonlocal now
            now += 3.0

        monkeypatch.setattr("regmixup.training.checkpoint.time.monotonic", lambda: now)
        schedule = SaveSchedule(minutes=60)
        ranks = SimpleNamespace(is_first=False, wait=wait)
        Training.save(SimpleNamespace(ranks=ranks, save_schedule=schedule))
        now = 302.0
        assert not schedule.due_after_epoch()
        now = 303.0
        assert schedule.due_after_epoch()

    def test_an_epoch_of_one_step_is_saved_and_interrupted_like_any_other(self, tmp_path):
        settings, seen = config(batch_size=50), []
        whole = ending(rm.train(settings, tmp_path / "whole", device="cpu"))
        interrupt(settings, tmp_path / "cut", after=1, on_epoch=seen.append)
        assert [record["epoch"] for record in seen] == [1], "the epoch's record is handed on before leaving"
        run = rm.train(settings, tmp_path / "cut", device="cpu", on_epoch=seen.append)
        assert [record["epoch"] for record in seen] == [1, 2, 3]
        assert_same_ending(ending(run), whole)
