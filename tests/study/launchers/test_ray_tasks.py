"""A Ray cluster of this machine: the same rows, although a worker is killed."""

import ast
import sys
from pathlib import Path

import pytest

import regmixup
from regmixup.study.launchers import RayTasks
from regmixup.study.runner import run_study
from tests.study.launchers.killing import KillOne


@pytest.fixture
def ray():
    return pytest.importorskip("ray", reason="Ray is not installed: pip install 'regmixup[ray]'")


def test_a_killed_worker_is_replaced_and_its_run_goes_on(tmp_path, study, expected, ray):
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        killer = KillOne(tmp_path)
        folder = run_study(study, tmp_path, launcher=RayTasks(gpus_per_run=0))
        assert ray.is_initialized()  # whoever connected disconnects
    finally:
        ray.shutdown()
    assert (folder / "rows.csv").read_bytes() == expected
    killer.check_that_the_run_went_on()


def test_a_share_that_this_machine_does_not_have_is_refused_instead_of_waited_for(tmp_path, study, ray, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ValueError, match=r"cpus_per_run must be at most \d+, which is all that Ray has, got 100000"):
        run_study(study, tmp_path, launcher=RayTasks(gpus_per_run=0, cpus_per_run=100_000))
    assert not ray.is_initialized()


def test_no_file_imports_ray_before_it_is_asked_for():
    for path in Path(regmixup.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            assert "ray" not in [alias.name for alias in getattr(node, "names", [])], f"{path} imports ray"


def test_without_ray_the_command_that_installs_it_is_named(tmp_path, study, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'regmixup\[ray\]'"):
        run_study(study, tmp_path, launcher=RayTasks())


def test_the_share_of_a_gpu_decides_the_device():
    assert RayTasks().device.type == RayTasks(gpus_per_run=0.5).device.type == "cuda"
    assert RayTasks(gpus_per_run=0).device.type == "cpu"
    with pytest.raises(ValueError, match="gpus_per_run must be a finite number >= 0, got -1"):
        RayTasks(gpus_per_run=-1)
