"""The cost of runs: how long they take, and which of them fit a time limit.

How long an epoch takes, a run of the same kind in the runs folder says. Where there is none, `step_times.toml` does,
which says how each step was measured: a run costs epochs x images x members x (time of a step / 128), plus a forward
pass and the metrics of every image it is evaluated on.
"""

from __future__ import annotations

import glob
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

from regmixup import run_folder
from regmixup.config import check_number
from regmixup.data.catalogue import find
from regmixup.methods import REFERENCE
from regmixup.names import counted
from regmixup.study.planned_run import PlannedRun
from regmixup.study.tasks import Task
from regmixup.training.config import TrainConfig
from regmixup.training.run import Run

PASSES = {
    **dict.fromkeys(("label-smoothing", "mixup", "cutmix", "mixup+cutmix", "cutout", "logitnorm"), 1.0),
    **dict.fromkeys(("regmixup", "regcutmix", "regmixup+regcutmix", "reg-gaussian-noise", "pixmix"), 2.0),
    "regmixup+cutmix": 1.5,
    "rotation": 4.0,
}
"""Images that a step forwards, relative to plain training, of methods that add little else to a compiled step."""
FLOAT32_FACTOR = 6.8
"""Float32 relative to bfloat16 on an H200: an epoch of ResNet-18 with RegMixup takes 11.2 s, eager."""
MEASURE_MICROSECONDS = 20.0
"""Metrics and intervals, per evaluated image: 16 s for the 800,000 of a CIFAR-10 evaluation."""
RESERVE = 1.1
"""Factor on the expected time of a run where there is a time limit; covers the start, too."""

# By the table of step times


@cache
def step_times() -> dict[str, Any]:
    """Read the measured step times: section -> network -> method -> milliseconds."""
    return tomllib.loads((resources.files("regmixup.study") / "step_times.toml").read_text(encoding="utf-8"))


def device_of(network: str) -> str:
    """Return the device that the step times of a network belong to."""
    return "2 CPU cores" if network in step_times()["cpu"] else "one H200"


def step_milliseconds(network: str, method: str, *, apart: bool = False) -> float | None:
    """Return the time of a training step with 128 images; None where nothing is known.

    A method that forwards p times the images of plain training takes dnn + (p - 1) (regmixup - dnn), as measured in
    compiled steps, and any other dnn times its relative time in eager mode.
    apart: the p passes are separate; then each takes as long as a plain step, p dnn together.
    """
    tables = [step_times()[section] for section in ("compiled", "cpu", "estimated")]
    name = network.removesuffix("-sngp")  # whose head takes no time worth a measurement of its own
    plain = next((table[name]["dnn"] for table in tables if name in table), None)
    if plain is None:
        return None
    # Relative times are those of ResNet-50, but for the two networks that are more like WRN-28-10.
    similar = "wrn28-10" if name in ("wrn28-10", "timm/resnet50") else "resnet50"
    compiled, eager = step_times()["compiled"][similar], step_times()["eager"][similar]
    if method not in PASSES:
        return float(plain * eager.get(method, eager["dnn"]) / eager["dnn"])
    second_pass = 1.0 if apart else compiled["regmixup"] / compiled["dnn"] - 1
    return float(plain * (1 + (PASSES[method] - 1) * second_pass))


def training_minutes(method: str, config: TrainConfig) -> float | None:
    """Return the time of training one model by the table; None where nothing is known."""
    apart = getattr(config.objective, "passes", "joint") != "joint"
    step, images = step_milliseconds(config.network, method, apart=apart), find(config.train_set).images
    if step is None or images is None:
        return None
    slower = FLOAT32_FACTOR if config.precision == "float32" and "CPU" not in device_of(config.network) else 1.0
    return config.total_epochs * images * slower * step / 128 / 60_000


def evaluation_minutes(planned: PlannedRun) -> float | None:
    """Return the time of an evaluation: forward passes, a third of a step each, and metrics."""
    step = step_milliseconds(planned.config.network, REFERENCE)
    counts = [find(name).images for name in planned.evaluate.datasets()]
    if step is None or None in counts:
        return None
    milliseconds = planned.config.members * step / 3 / 128 + MEASURE_MICROSECONDS / 1000
    return sum(count for count in counts if count is not None) * milliseconds / 60_000


# By the epochs of other runs


def measured_epoch(config: TrainConfig, runs: Path) -> float | None:
    """Return the seconds of an epoch of a run like this one, or of this one itself; None if there is none.

    The run is the one that ended an epoch last, so that the pace follows the load of the device. The median of its
    last three epochs counts; the first is not among them, as it includes compilation.
    """
    name = config.name.rpartition("-s")[0]  # without seed and fingerprint
    histories = runs.glob(f"{glob.escape(name)}-s*/{run_folder.HISTORY}")
    for path in sorted(histories, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        with suppress(OSError, ValueError):  # a folder that is damaged, or cannot be read now
            run = Run.open(path.parent)
            seconds = [record["seconds"] for record in run.history()[1:]]
            if seconds and _kind(run.config) == _kind(config):
                return median(seconds[-3:])
    return None


def _kind(config: TrainConfig) -> list[Any]:
    """Return the fields that decide the time of an epoch."""
    names = ("objective", "constraint", "head", "network", "train_set", "batch_size", "precision")
    return [getattr(config, name) for name in names]


# All runs together


@dataclass(frozen=True)
class Estimate:
    """The cost of runs. networks: to train. minutes: of training and evaluation on `device`, None if unknown."""

    networks: int
    minutes: float | None
    device: str

    def __str__(self) -> str:
        """
        >>> print(Estimate(15, 1234.0, "one H200"), Estimate(0, 0.0, "one H200"), sep="; ")
        15 networks to train, about 1,200 GPU minutes (21 hours) on one H200; 0 networks to train, no time
        """
        count = f"{counted(self.networks, 'network')} to train"
        if self.minutes is None:
            return f"{count}, time unknown"
        if self.minutes == 0:
            return f"{count}, no time"
        shown = float(f"{self.minutes:.2g}")
        unit = ("GPU minute" if "H200" in self.device else "minute") + "s" * (shown > 1)
        hours = f" ({self.minutes / 60:.2g} hours)" if 120 <= self.minutes < 4800 else ""
        days = f" ({self.minutes / 1440:.2g} days)" if self.minutes >= 4800 else ""
        return f"{count}, about {max(shown, 1.0):,.0f} {unit}{hours}{days} on {self.device}"


def estimate(lines: Iterable[PlannedRun | Task]) -> Estimate:
    """Estimate the cost of planned runs by the table, or of what is left to do of tasks. Shared models count once."""
    training: dict[str, float | None] = {}
    evaluations: list[float | None] = []
    devices: dict[str, None] = {}
    for line in lines:
        planned = line.planned if isinstance(line, Task) else line
        if isinstance(line, Task) and line.done:
            continue
        for config, share, seconds in _models_left(line):
            devices[device_of(config.network) if seconds is None else "this machine"] = None
            # As planned, not as resolved for a device: step times are those of the device they name.
            by_table = training_minutes(planned.method, replace(config, precision=planned.config.precision))
            whole = by_table if seconds is None else config.total_epochs * seconds / 60
            training[config.name] = share * whole if whole is not None else None
        evaluations.append(evaluation_minutes(planned))
    known = [part for part in (*training.values(), *evaluations) if part is not None]
    minutes = sum(known) if len(known) == len(training) + len(evaluations) else None
    return Estimate(len(training), minutes, ", ".join(devices) or "this machine")


def _models_left(line: PlannedRun | Task) -> Iterator[tuple[TrainConfig, float, float | None]]:
    """Yield the models to train, the share of each that is left, and the seconds of an epoch if they are known."""
    if isinstance(line, PlannedRun):
        yield from ((config, 1.0, None) for config in line.models())
        return
    for run in line.models():
        if not run.finished:
            # An archived run has a history, but no weights.
            epochs = len(run.history()) if run.checkpoint.is_file() else 0
            share = 1 - min(1.0, epochs / run.config.total_epochs)
            yield run.config, share, measured_epoch(run.config, run.folder.parent)


class Budget:
    """A time limit for a study: start no run that would not end within so many minutes from now.

    A run whose pace is unknown is started all the same.
    """

    def __init__(self, minutes: float) -> None:
        check_number("minutes", minutes, least=0)
        self.minutes = minutes
        self.end = time.monotonic() + 60 * minutes

    def seconds(self, task: Task) -> float:
        """Return the seconds that a task still takes by the pace that similar runs have now, with a reserve."""
        return RESERVE * 60 * (estimate([task]).minutes or 0.0)

    def fits(self, task: Task) -> bool:
        """Return whether a task would end in time if it started now; one that is done always does."""
        return task.done or self.seconds(task) < self.end - time.monotonic()
