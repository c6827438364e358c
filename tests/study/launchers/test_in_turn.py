"""One run after the other: one that fails, and one that another process holds."""

import os
import shutil
import signal

import pytest

from regmixup.study.launchers import InTurn, Processes, schedule
from regmixup.study.runner import FailedRunsError, run_study
from regmixup.training.run import Run
from tests.holding import held_by_another_process


@pytest.fixture
def unfinished(tmp_path, undisturbed):
    """The study's runs, of which one is still to be trained: the second of four."""
    runs = tmp_path / "runs"
    shutil.copytree(undisturbed, runs)
    (folder,) = runs.glob("regmixup-*-s0-*")
    shutil.rmtree(folder)
    return Run(folder, Run.open(undisturbed / folder.name).config)


def test_a_run_that_fails_leaves_its_traceback_and_the_same_command_tries_it_again(unfinished, study, expected):
    runs, note = unfinished.folder.parent, unfinished.folder / "failure.txt"
    unfinished.folder.mkdir()
    unfinished.checkpoint.write_bytes(b"damaged")
    with pytest.raises(
        FailedRunsError, match=r"1 of 4 runs failed(.|\n)*regmixup seed 0: ValueError: .* has no checkpoint that can"
    ) as error:
        run_study(study, runs, device="cpu")
    assert str(note) in str(error.value)
    assert "Traceback" in note.read_text()
    table = (runs / "study-mini" / "rows.csv").read_text()
    assert {tuple(line.split(",")[2:6:3]) for line in table.splitlines()[1:]} == {
        ("dnn", "0"), ("dnn", "1"), ("regmixup", "1"),
    }  # fmt: skip
    unfinished.checkpoint.unlink()
    run_study(study, runs, device="cpu")
    assert (runs / "study-mini" / "rows.csv").read_bytes() == expected
    assert not note.exists()


def test_a_run_that_another_process_holds_is_waited_for(unfinished, study, expected, monkeypatch):
    monkeypatch.setattr(schedule, "AGAIN", 0.1)
    runs = unfinished.folder.parent
    done = []

    class ReleaseAfterTheOthers:
        def begin(self, label, epochs): ...
        def start(self, execution): ...
        def step(self, label, record): ...
        def epoch(self, label, record): ...
        def end(self, label, note):
            done.append(label)
            if len(done) == 3:
                holding.__exit__(None, None, None)

    holding = held_by_another_process(unfinished.folder)
    holding.__enter__()
    with pytest.warns(
        UserWarning, match=rf"regmixup seed 0 waits, at most 24 hours: {unfinished.folder} is in use by "
    ):
        run_study(study, runs, device="cpu", progress=ReleaseAfterTheOthers())
    assert done == ["dnn seed 0", "dnn seed 1", "regmixup seed 1", "regmixup seed 0"]
    assert (runs / "study-mini" / "rows.csv").read_bytes() == expected


def test_a_termination_signal_stops_a_study_as_ctrl_c_does(unfinished, study):
    class Terminate:
        def begin(self, label, epochs):
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, unfinished.folder.parent, device="cpu", progress=Terminate())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_launcher_brings_its_own_device(study, tmp_path):
    with pytest.raises(ValueError, match="device must be None where a launcher brings its own, got 'cpu'"):
        run_study(study, tmp_path, device="cpu", launcher=Processes(("cpu", "cpu")))
    assert InTurn("cpu").device.type == "cpu"
