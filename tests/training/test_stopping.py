"""Ctrl-C and SIGTERM: the first one saves and leaves, the second one leaves at once."""

import importlib
import signal
import threading
from contextlib import suppress

import pytest
import torch

import regmixup as rm
from regmixup import data
from regmixup.cli import main
from regmixup.run_folder import CHECKPOINT
from regmixup.training.stopping import Interrupted, stopping
from tests.training.short import STEPS, after_step, assert_same_ending, config, ending, interrupt, signal_after

pytestmark = pytest.mark.usefixtures("few_digits")

BOTH = [signal.SIGINT, signal.SIGTERM]


def handlers():
    return [signal.getsignal(number) for number in BOTH]


class TestStopping:
    @pytest.mark.parametrize("number", BOTH)
    def test_the_first_signal_is_noted_and_the_handlers_are_back_for_the_second(self, number):
        before = handlers()
        with stopping() as stop:
            assert not stop.signal
            assert all(handler not in before for handler in handlers())
            signal.raise_signal(number)
            assert stop.signal == number
            assert handlers() == before
        assert handlers() == before

    def test_what_is_ignored_stays_ignored(self):
        """A shell starts background jobs so: Ctrl-C is for those in the foreground."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with stopping() as stop:
                signal.raise_signal(signal.SIGINT)
                assert not stop.signal
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGINT, before)


def test_training_in_another_thread_ends_with_the_same_bits(tmp_path):
    expected = ending(rm.train(config(), tmp_path / "main", device="cpu"))
    found = []

    def work():
        torch.set_num_threads(1)  # a thread has a number of its own
        found.append(rm.train(config(), tmp_path / "thread", device="cpu"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert_same_ending(ending(found[0]), expected)


def test_the_last_step_of_training_is_not_lost_to_a_signal(tmp_path):
    """Asked to stop when there is nothing left to do, a run is finished first; a study then goes no further."""
    interrupt(config(), tmp_path, after=3 * STEPS)
    assert rm.Run.open(next(tmp_path.iterdir())).finished


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_signal_while_a_run_is_prepared_stops_it_before_anything_is_written(tmp_path, monkeypatch, dry_run):
    load = data.load

    def load_signalled(name, *, root=None):
        signal.raise_signal(signal.SIGINT)
        return load(name, root=root)

    monkeypatch.setattr(data, "load", load_signalled)
    with pytest.raises(Interrupted, match="SIGINT"):
        rm.train(config(), tmp_path, device="cpu", dry_run=dry_run)
    assert not list(tmp_path.iterdir())


class TestCommand:
    """`regmixup train`, which gets the signals from itself in its second step."""

    def command(self, runs):
        return ["train", "--method", "dnn", "--epochs", "2", "--runs", str(runs), "--device", "cpu"]

    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_once_it_saves_and_says_how_to_go_on(self, tmp_path, capsys, number, status):
        with signal_after(1, number):
            assert main(self.command(tmp_path / "cut")) == status
        assert capsys.readouterr().err == "interrupted; the same command goes on from here\n"
        (folder,) = (tmp_path / "cut").iterdir()
        assert (folder / CHECKPOINT).exists()
        assert not (folder / ".owner").exists()
        assert main(self.command(tmp_path / "cut")) == main(self.command(tmp_path / "whole")) == 0
        runs = [rm.Run.open(next((tmp_path / name).iterdir())) for name in ("cut", "whole")]
        assert_same_ending(*map(ending, runs))

    def test_ctrl_c_while_modules_are_imported_is_not_lost(self, tmp_path, monkeypatch):
        """Libraries swallow exceptions then, or end the process."""
        import_module = importlib.import_module

        def import_signalled(name):
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            return import_module(name)

        monkeypatch.setattr(importlib, "import_module", import_signalled)
        assert main(self.command(tmp_path)) == 130
        assert not list(tmp_path.iterdir())

    def test_ctrl_c_twice_leaves_at_once_and_saves_nothing(self, tmp_path, capsys):
        def twice():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("still there")

        with after_step(1, twice):
            assert main(self.command(tmp_path)) == 130
        assert "goes on from here" in capsys.readouterr().err
        assert not list(tmp_path.rglob("*.safetensors"))
