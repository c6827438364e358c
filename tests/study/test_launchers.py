"""Launchers: the same rows from each, whichever process is killed; and what is left when a study is stopped."""

import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from regmixup.cli import main
from regmixup.study import launchers
from regmixup.study.launchers import InTurn, Processes, RayTasks, all_devices
from regmixup.study.runner import FailedRunsError, run_study
from regmixup.study.tasks import StudyJob
from regmixup.training.run import Run
from tests.study.killing import KillOne
from tests.study.mini import MINI, write_mini


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
        FailedRunsError, match=r"1 of 4 runs failed(.|\n)*regmixup seed 0: ValueError: cannot use checkpoint"
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


def test_a_warning_of_a_worker_is_its_text_alone(finished_study, tmp_path, capfd):
    """The stack of such a process has no line of the user's to show."""
    shutil.copytree(finished_study.runs, tmp_path, dirs_exist_ok=True)
    (damaged,) = tmp_path.glob("erm-*-s0-*/predictions/digits__test.safetensors")
    damaged.write_bytes(b"")
    next(damaged.parents[1].glob("rows-*.csv")).unlink()
    run_study(finished_study.study, tmp_path, launcher=Processes(("cpu",)))
    (said,) = capfd.readouterr().err.splitlines()
    assert re.fullmatch(rf"warning: cannot read predictions from {damaged}: .*; predicted again", said)


def test_a_termination_signal_stops_a_study_as_ctrl_c_does(unfinished, study):
    class Terminate:
        def hooks(self, label, epochs):
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, unfinished.folder.parent, device="cpu", progress=Terminate())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_launcher_brings_its_own_device(study, tmp_path):
    with pytest.raises(ValueError, match="device must be None where a launcher brings its own, got 'cpu'"):
        run_study(study, tmp_path, device="cpu", launcher=Processes(("cpu", "cpu")))
    assert InTurn("cpu").device.type == "cpu"


def test_a_killed_worker_fails_its_run_and_the_same_command_resumes_it(
    tmp_path, short, expected_short, processes, monkeypatch
):
    """Its processes are forks of a server that has imported everything."""
    monkeypatch.setattr(launchers, "multiprocessing", SimpleNamespace(get_context=lambda method: processes))
    killer = KillOne(tmp_path)
    with pytest.raises(FailedRunsError, match=r"1 of 2 runs failed.*\n.*its process ended .* exit code -9"):
        run_study(short, tmp_path, launcher=Processes(("cpu", "cpu")))
    folder = run_study(short, tmp_path, device="cpu")
    assert (folder / "rows.csv").read_bytes() == expected_short
    killer.check_that_the_run_went_on()


def lead_a_group(words, errors, method):
    """Run the command in a session of its own, as a shell would start it. method: how its workers start."""
    os.setsid()
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))  # as spawned ones have it
    launchers.multiprocessing = SimpleNamespace(get_context=lambda _: multiprocessing.get_context(method))
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    sys.exit(main(words))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
def test_ctrl_c_stops_a_study_and_its_workers(tmp_path, processes, method):
    """The terminal sends it to the whole group; the first process ends the others. Spawned ones import everything."""
    endless = write_mini(tmp_path, MINI.replace("epochs = 5", "epochs = 10000"))
    words = ["study", endless, "--runs", tmp_path / "runs", "--devices", "cpu", "cpu"]
    parent = processes.Process(target=lead_a_group, args=([str(word) for word in words], tmp_path / "stderr", method))
    parent.start()
    until = time.monotonic() + 300
    while len(owners := list((tmp_path / "runs").glob("[!s]*/.owner"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    pids = [int(owner.read_text().split()[1]) for owner in owners]
    os.killpg(parent.pid, signal.SIGINT)
    parent.join(120)
    if parent.is_alive():
        os.killpg(parent.pid, signal.SIGKILL)  # or it would be waited for, and it is endless
    assert parent.exitcode == 130
    assert (tmp_path / "stderr").read_text() == "interrupted; the same command goes on from here\n"
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ((), "one or more of the same kind.*got none"),
        (("cpu", "cuda:0"), "one or more of the same kind.*got cpu, cuda:0"),
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


@pytest.fixture
def ray():
    return pytest.importorskip("ray", reason="Ray is not installed: pip install 'regmixup[ray]'")


def run_on_ray_and_kill(ray, runs, study, cpus=1) -> Path:
    ray.init(address="local", num_cpus=cpus, include_dashboard=False, log_to_driver=False)
    try:
        killer = KillOne(runs)
        folder = run_study(study, runs, launcher=RayTasks(gpus_per_run=0))
        assert ray.is_initialized()  # whoever connected disconnects
    finally:
        ray.shutdown()
    killer.check_that_the_run_went_on()
    return folder


@pytest.mark.ray
def test_a_killed_ray_worker_is_replaced_and_its_run_resumes(tmp_path, short, expected_short, ray):
    assert (run_on_ray_and_kill(ray, tmp_path, short) / "rows.csv").read_bytes() == expected_short


def test_a_share_that_this_machine_does_not_have_is_refused_instead_of_waited_for(tmp_path, study, monkeypatch):
    """With a stand-in for Ray. A cluster that has an address may still grow."""
    ray = SimpleNamespace(
        is_initialized=lambda: False, init=lambda **_: None,
        cluster_resources=lambda: {"CPU": 2.0}, put=lambda job: job, remote=lambda **_: lambda function: function,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    message = "cpus_per_run must be at most 2, which is all that Ray has, got 100000"
    job = StudyJob(runs=tmp_path)
    with pytest.raises(ValueError, match=message):
        RayTasks(gpus_per_run=0, cpus_per_run=100_000).open(job, None)
    launcher = RayTasks(gpus_per_run=0, cpus_per_run=100_000, address="auto")
    launcher.open(job, None)
    assert launcher.has_room()


def test_without_ray_the_command_that_installs_it_is_named(tmp_path, study, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'regmixup\[ray\]'"):
        run_study(study, tmp_path, launcher=RayTasks())


def test_ray_takes_no_time_limit(tmp_path, study):
    with pytest.raises(ValueError, match="minutes must be None with Ray"):
        run_study(study, tmp_path, launcher=RayTasks(), minutes=1)


def test_the_share_of_a_gpu_decides_the_device():
    assert RayTasks().device.type == RayTasks(gpus_per_run=0.5).device.type == "cuda"
    assert RayTasks(gpus_per_run=0).device.type == "cpu"
    with pytest.raises(ValueError, match="gpus_per_run must be a finite number >= 0, got -1"):
        RayTasks(gpus_per_run=-1)
