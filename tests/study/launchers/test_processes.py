"""One process per device: the same rows, whoever is killed; and what is left when a study is stopped."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from regmixup.study.launchers import Processes, all_devices, processes
from regmixup.study.runner import FailedRunsError, run_study
from tests.study.launchers.killing import KillOne
from tests.study.mini import MINI, write_mini


def test_a_killed_worker_is_replaced_and_its_run_goes_on(tmp_path, study, expected):
    killer = KillOne(tmp_path)
    folder = run_study(study, tmp_path, launcher=Processes(("cpu", "cpu")))
    assert (folder / "rows.csv").read_bytes() == expected
    killer.check_that_the_run_went_on()


def test_a_run_that_is_lost_too_often_fails_the_others_go_on_and_the_next_time_it_is_tried_again(
    tmp_path, study, expected, monkeypatch
):
    monkeypatch.setattr(processes, "RETRIES", 0)
    killer = KillOne(tmp_path)
    with pytest.raises(FailedRunsError, match="1 of 4 runs failed") as error:
        run_study(study, tmp_path, launcher=Processes(("cpu", "cpu")))
    note = killer.folder / "failure.txt"
    assert str(note) in str(error.value)
    assert "exit code -9" in note.read_text()
    assert len({line.split(",")[1] for line in (tmp_path / "study-mini" / "rows.csv").read_text().splitlines()}) == 4
    folder = run_study(study, tmp_path, device="cpu")
    assert (folder / "rows.csv").read_bytes() == expected
    assert not note.exists()
    killer.check_that_the_run_went_on()


def test_ctrl_c_stops_a_study_and_its_workers(tmp_path):
    """The terminal sends it to the whole group; the first process ends the others."""
    endless = MINI.replace("epochs = 5", "epochs = 10000")
    command = [sys.executable, "-m", "regmixup", "study", write_mini(tmp_path, endless), "--runs", tmp_path / "runs"]
    command += ["--devices", "cpu", "cpu"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as parent:
        until = time.monotonic() + 60
        while len(owners := list((tmp_path / "runs").glob("[!s]*/.owner"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        pids = [int(owner.read_text()) for owner in owners]
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.wait(30) == 130
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
    ],
)
def test_devices_that_do_not_go_together_are_refused(devices, message):
    with pytest.raises(ValueError, match=message):
        Processes(devices)


def test_all_devices_are_those_torch_sees(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    with pytest.raises(ValueError, match="there is no accelerator here"):
        all_devices()
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert all_devices() == ("cuda:0", "cuda:1")
