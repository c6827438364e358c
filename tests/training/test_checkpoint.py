"""A checkpoint is whole or passed over, and what was saved stays saved."""

import errno
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
    Schedule,
    newest_checkpoint,
    read_checkpoint,
    save_checkpoint,
)
from regmixup.training.loop import Training
from regmixup.training.stopping import Interrupted
from tests.failing import unreadable
from tests.training.short import (
    EVERY_STEP,
    STEPS,
    assert_same_ending,
    config,
    ending,
    load_few,
    same_bits,
    signal_after,
)

pytestmark = pytest.mark.usefixtures("few_digits")

PREVIOUS = "checkpoint-previous.safetensors"

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
    """The folder of that run, interrupted in its second epoch, with two checkpoints in it."""
    runs = tmp_path_factory.mktemp("cut")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(data, "load", load_few)
        with signal_after(STEPS + 2), pytest.raises(Interrupted):
            rm.train(config(), runs, device="cpu", engine=EVERY_STEP)
    return next(runs.iterdir())


def copied(cut, tmp_path):
    return shutil.copytree(cut, tmp_path / cut.name)


def resumed(tmp_path):
    return ending(rm.train(config(), tmp_path, device="cpu"))


class TestRoundTrip:
    def test_everything_comes_back_bit_for_bit(self, tmp_path):
        save_checkpoint(tmp_path, CONTENT, fingerprint="f")
        found = read_checkpoint(tmp_path / CHECKPOINT, fingerprint="f")
        assert (found.position, found.data) == (CONTENT.position, CONTENT.data)
        assert found.tensors.keys() == CONTENT.tensors.keys()
        assert all(same_bits(found.tensors[name], tensor) for name, tensor in CONTENT.tensors.items())

    def test_a_save_keeps_the_one_before_and_none_before_that(self, tmp_path):
        for epoch in (1, 2, 3):
            save_checkpoint(tmp_path, Checkpoint(CONTENT.tensors, Position(epoch), "d"), fingerprint="f")
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([CHECKPOINT, PREVIOUS])
        epochs = [read_checkpoint(tmp_path / name, fingerprint="f").position.epoch for name in (CHECKPOINT, PREVIOUS)]
        assert epochs == [3, 2]

    @pytest.mark.parametrize("name", [CHECKPOINT, PREVIOUS])
    def test_one_that_cannot_be_read_now_is_not_passed_over(self, tmp_path, name):
        """The one before would take its place, and without one before people would be told to delete it."""
        for epoch in (1, 2):
            save_checkpoint(tmp_path, Checkpoint(CONTENT.tensors, Position(epoch), "d"), fingerprint="f")
        if name == PREVIOUS:
            (tmp_path / CHECKPOINT).unlink()
        with unreadable(tmp_path / name) as error, pytest.raises(OSError, match=error):
            newest_checkpoint(tmp_path, fingerprint="f")
        assert newest_checkpoint(tmp_path, fingerprint="f").position.epoch == (1 if name == PREVIOUS else 2)


def flip(path, index):
    """Invert one bit of one byte."""
    content = bytearray(path.read_bytes())
    content[index] ^= 0x10
    path.write_bytes(content)


def test_no_byte_can_change_unnoticed(tmp_path):
    """Every byte of the file, header and position included: refused, or read as the same content all the same."""
    path = tmp_path / CHECKPOINT
    save_checkpoint(tmp_path, CONTENT, fingerprint="f")
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    unnoticed = []
    for index in range(len(whole)):
        path.write_bytes(whole)
        flip(path, index)
        try:
            found = read_checkpoint(path, fingerprint="f")
        except ValueError as error:
            assert re.match(r"cannot use checkpoint .*checkpoint\.safetensors: ", str(error))  # noqa: PT017
        else:
            unnoticed.append(index)
            assert (found.position, found.data) == (CONTENT.position, CONTENT.data)
            assert all(same_bits(found.tensors[name], tensor) for name, tensor in CONTENT.tensors.items())
    assert all(index < header for index in unnoticed)


class TestDamage:
    @pytest.mark.parametrize("share", [0, 0.001, 0.5])
    def test_a_truncated_newest_is_passed_over_for_the_previous(self, cut, tmp_path, expected, share):
        newest = copied(cut, tmp_path) / CHECKPOINT
        content = newest.read_bytes()
        newest.write_bytes(content[: int(share * len(content))])
        with pytest.warns(UserWarning, match=rf"goes on from {PREVIOUS}: cannot use {CHECKPOINT}: "):
            assert_same_ending(resumed(tmp_path), expected)

    def test_the_previous_is_not_lost_to_the_damaged_one(self, cut, tmp_path):
        """Else the next save would put the damaged one in the place of the only whole one."""
        folder = copied(cut, tmp_path)
        flip(folder / CHECKPOINT, -1)
        step = read_checkpoint(folder / PREVIOUS, fingerprint=rm.Run.open(folder).fingerprint).position.step
        with pytest.warns(UserWarning, match="goes on from"), signal_after(1), pytest.raises(Interrupted):
            rm.train(config(), tmp_path, device="cpu")
        found = [
            read_checkpoint(folder / name, fingerprint=rm.Run.open(folder).fingerprint)
            for name in (PREVIOUS, CHECKPOINT)
        ]
        assert [checkpoint.position.step for checkpoint in found] == [step, step + 1]

    def test_without_any_whole_one_the_error_names_them_and_the_way_out(self, cut, tmp_path, expected):
        folder = copied(cut, tmp_path)
        for name in (CHECKPOINT, PREVIOUS):
            flip(folder / name, -1)
        with pytest.raises(ValueError, match=rf"no checkpoint that can be used \({CHECKPOINT}: its content.*; "
                                             rf"{PREVIOUS}: its content.*\)\. Delete these files"):  # fmt: skip
            resumed(tmp_path)
        for name in (CHECKPOINT, PREVIOUS):
            (folder / name).unlink()
        assert_same_ending(resumed(tmp_path), expected)

    def test_a_run_trained_again_is_not_finished_before_its_end(self, tmp_path, expected):
        """Its record of the first time is there, and from the first save on a checkpoint."""
        run = rm.train(config(), tmp_path, device="cpu")
        run.checkpoint.unlink()
        with signal_after(2), pytest.raises(Interrupted):
            rm.train(config(), tmp_path, device="cpu")
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
    found = newest_checkpoint(folder, fingerprint=rm.Run.open(folder).fingerprint).position
    assert (found.epoch, found.step) == (before.epoch, before.step)
    assert not list(folder.glob(".partial-*"))
    assert_same_ending(resumed(tmp_path), expected)


class TestSchedule:
    def test_by_the_clock_since_the_last_one(self, monkeypatch):
        now = 100.0
        monkeypatch.setattr("regmixup.training.checkpoint.time.monotonic", lambda: now)
        schedule = Schedule(minutes=2)
        now = 219.0
        assert not schedule.after_step()
        now = 220.0
        assert schedule.after_step()
        schedule.saved(begun=210.0)
        now = 339.0
        assert not schedule.after_step()
        assert not schedule.after_epoch()
        now = 340.0
        assert schedule.after_epoch()

    def test_after_an_epoch_that_took_a_hundred_times_as_long_as_saving(self, monkeypatch):
        now = 0.0
        monkeypatch.setattr("regmixup.training.checkpoint.time.monotonic", lambda: now)
        schedule = Schedule(minutes=60)
        assert schedule.after_epoch(), "what saving costs is not known yet"
        now = 2.0
        schedule.saved(begun=1.5)
        now = 51.9
        assert not schedule.after_epoch()
        now = 52.0
        assert schedule.after_epoch()

    def test_processes_that_write_nothing_know_what_saving_costs(self, monkeypatch):
        """Else each of them would ask for a checkpoint after every epoch, and all would agree."""
        now = 0.0

        def wait():
            nonlocal now
            now += 3.0

        monkeypatch.setattr("regmixup.training.checkpoint.time.monotonic", lambda: now)
        schedule = Schedule(minutes=60)
        ranks = SimpleNamespace(first=False, wait=wait)
        Training.save(SimpleNamespace(ranks=ranks, schedule=schedule))
        now = 302.0
        assert not schedule.after_epoch()
        now = 303.0
        assert schedule.after_epoch()

    def test_an_epoch_of_one_step_is_saved_and_interrupted_like_any_other(self, tmp_path):
        settings, seen = config(batch_size=50), []
        whole = ending(rm.train(settings, tmp_path / "whole", device="cpu"))
        with signal_after(1), pytest.raises(Interrupted):
            rm.train(settings, tmp_path / "cut", device="cpu", on_epoch=seen.append)
        assert [record["epoch"] for record in seen] == [1], "the epoch's record is handed on before leaving"
        run = rm.train(settings, tmp_path / "cut", device="cpu", on_epoch=seen.append)
        assert [record["epoch"] for record in seen] == [1, 2, 3]
        assert_same_ending(ending(run), whole)
