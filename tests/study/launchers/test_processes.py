"""One process per device: the same rows, whoever is killed; and what is left when a study is stopped."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from regmixup.study.launchers import InTurn, Processes, all_devices, processes
from regmixup.study.launchers.tasks import RETRIES
from regmixup.study.runner import FailedRunsError, run_study
from tests.study.launchers.killing import KillOne
from tests.study.mini import MINI, write_mini


def test_a_killed_worker_is_replaced_and_its_run_goes_on(tmp_path, study, expected):
    killer = KillOne(tmp_path)
    with pytest.warns(UserWarning, match=r"the process of .* seed . ended with exit code -9: tried again"):
        folder = run_study(study, tmp_path, launcher=Processes(("cpu", "cpu")))
    assert (folder / "rows.csv").read_bytes() == expected
    killer.check_that_the_run_went_on()


def test_a_run_whose_process_is_lost_again_and_again_fails(tmp_path, study, monkeypatch):
    started = []

    class Dying:
        """A worker that dies before it answers."""

        def __init__(self, job, device, threads):
            started.append(device)
            self.device, self.process = device, SimpleNamespace(exitcode=-9, terminate=lambda: None)
            self.connection, theirs = multiprocessing.Pipe()
            theirs.close()

        def leave(self):
            self.connection.close()

    monkeypatch.setattr(processes, "_Worker", Dying)
    tried = pytest.warns(UserWarning, match="seed . ended with exit code -9: tried again")
    failed = pytest.raises(FailedRunsError, match="4 of 4 runs failed; the same command tries them again")
    with tried, failed as error:
        run_study(study, tmp_path, launcher=Processes(("cpu", "cpu")))
    notes = list(tmp_path.glob("*/failure.txt"))
    assert len(started) == 4 * (1 + RETRIES)
    assert len(notes) == 4
    assert "its process ended 4 times without a word, at last with exit code -9" in notes[0].read_text()
    assert "dnn seed 0, regmixup seed 0, dnn seed 1, regmixup seed 1: its process ended" in str(error.value)
    assert not (tmp_path / "study-mini" / "rows.csv").exists()


def test_ctrl_c_stops_a_study_and_its_workers(tmp_path):
    """The terminal sends it to the whole group; the first process ends the others."""
    endless = MINI.replace("epochs = 5", "epochs = 10000")
    command = [sys.executable, "-m", "regmixup", "study", write_mini(tmp_path, endless), "--runs", tmp_path / "runs"]
    command += ["--devices", "cpu", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as parent:
        until = time.monotonic() + 60
        while len(owners := list((tmp_path / "runs").glob("[!s]*/.owner"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        pids = [int(owner.read_text().split()[1]) for owner in owners]
        os.killpg(parent.pid, signal.SIGINT)
        try:
            assert parent.wait(30) == 130
        except subprocess.TimeoutExpired:
            os.killpg(parent.pid, signal.SIGKILL)  # or it would be waited for, and it is endless
            raise
        assert parent.stderr.read() == "interrupted; the same command goes on from here\n"
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ((), "one or more of the same kind.*got none"),
        (("cpu", "cuda:0"), "one or more of the same kind.*got cpu, cuda:0"),
        (("cuda:0", "cuda:1", "cuda:0"), "each accelerator once, got cuda:0 more than once"),
        (("cpu", "nonsense"), "device must be one that torch knows, such as cpu or cuda:0, got 'nonsense'"),
    ],
)
def test_devices_that_do_not_go_together_are_refused(devices, message):
    with pytest.raises(ValueError, match=message):
        Processes(devices)


@pytest.mark.parametrize("launcher", [InTurn("cuda:2"), Processes(("cuda:1", "cuda:2"))])
def test_a_device_that_is_not_there_stops_a_study_before_its_first_run(launcher, study, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="which has 2 of the kind cuda, got cuda:2"):
        run_study(study, tmp_path, launcher=launcher)
    assert not list(tmp_path.glob("[!s]*"))
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    with pytest.raises(ValueError, match="which has none of that kind"):
        run_study(study, tmp_path, launcher=launcher)


def test_all_devices_are_those_torch_sees(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    with pytest.raises(ValueError, match="there is no accelerator here"):
        all_devices()
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert all_devices() == ("cuda:0", "cuda:1")
