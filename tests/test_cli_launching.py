"""The flags that choose a launcher."""

import pytest

from regmixup.cli import launching
from regmixup.cli.launching import Launching
from regmixup.cli.parsing import parse
from regmixup.study.launchers import InTurn, Processes, RayTasks


def launcher(*words):
    return parse(Launching, "study", words).launch_with()


def test_without_flags_the_runs_go_one_after_the_other(monkeypatch):
    assert isinstance(launcher(), InTurn)
    assert launcher("--device", "cuda:1").device.index == 1
    assert isinstance(launcher("--devices", "cpu"), InTurn)


def test_several_devices_are_several_processes(monkeypatch):
    assert [str(device) for device in launcher("--devices", "cuda:0", "cuda:2").devices] == ["cuda:0", "cuda:2"]
    monkeypatch.setattr(launching, "all_devices", lambda: ("cuda:0", "cuda:1"))
    assert isinstance(found := launcher("--devices", "all"), Processes)
    assert len(found.devices) == 2
    monkeypatch.setattr(launching, "all_devices", lambda: ("cuda:0",))
    assert isinstance(launcher("--devices", "all"), InTurn)


def test_ray_gets_its_address_and_shares():
    assert launcher("--launcher", "ray") == RayTasks(address=None, gpus_per_run=1, cpus_per_run=1)
    words = ("--ray-address", "auto", "--gpus-per-run", "0.5", "--cpus-per-run", "4")
    assert launcher("--launcher", "ray", *words) == RayTasks(address="auto", gpus_per_run=0.5, cpus_per_run=4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--gpus-per-run 0", "--gpus-per-run must be given with --launcher ray"),
        ("--ray-address auto", "--ray-address must be given with --launcher ray"),
        ("--launcher ray --devices cpu cpu", "must not be given with --launcher ray"),
        ("--device cpu --devices cpu cpu", "give --device or --devices, got cpu and cpu cpu"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        launcher(*words.split())
