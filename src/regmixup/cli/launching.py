"""The flags that say where a study's runs are carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regmixup.cli.parsing import Surroundings
from regmixup.study.launchers import InTurn, Launcher, Processes, RayTasks, all_devices


@dataclass(frozen=True, kw_only=True)
class Launching(Surroundings):
    """Surroundings, and how many runs go on at once, where."""

    launcher: Literal["local", "ray"] = "local"
    """local: on this machine; ray: as tasks of a Ray cluster (pip install 'regmixup[ray]')."""
    devices: tuple[str, ...] = ()
    """local: one process for each, such as cuda:0 cuda:1, or all; default: one run after the other on --device."""
    ray_address: str | None = None
    """ray: a running cluster, such as auto; default: RAY_ADDRESS, else a cluster of this machine alone."""
    gpus_per_run: float | None = None
    """ray: GPUs of one run, default 1; 0.5 puts two runs on each, 0 trains on CPUs."""
    cpus_per_run: float | None = None
    """ray: CPU cores of one run, default 1."""

    def launch_with(self) -> Launcher:
        """The launcher that the flags describe; a flag that belongs to the other one is an error."""
        for_ray = {"address": self.ray_address, "gpus_per_run": self.gpus_per_run, "cpus_per_run": self.cpus_per_run}
        given = {name: value for name, value in for_ray.items() if value is not None}
        if self.launcher == "ray":
            if self.devices or self.device:
                raise ValueError("--device and --devices must not be given with --launcher ray, which assigns them")
            return RayTasks(**given)  # type: ignore[arg-type]
        if given:
            flag = {"address": "--ray-address"}.get(name := next(iter(given)), f"--{name.replace('_', '-')}")
            raise ValueError(f"{flag} must be given with --launcher ray")
        if self.devices and self.device:
            raise ValueError(f"give --device or --devices, got {self.device} and {' '.join(self.devices)}")
        devices = all_devices() if self.devices == ("all",) else self.devices or (self.device,)
        return InTurn(devices[0]) if len(devices) == 1 else Processes(devices)
